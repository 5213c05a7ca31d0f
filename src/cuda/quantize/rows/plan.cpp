#include "cuda/quantize/rows/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "cuda/host/device_guard.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/quantize/rows/launch.hpp"
#include "cuda/quantize/rows/supports.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::quantize::rows {
namespace {

Strides strides_of(const RowStrides& strides) { return {strides.batch, strides.head, strides.row}; }

// Whether every chunk of eight elements begins at a multiple of `bytes`.
bool are_aligned(const void* data, const RowStrides& strides, size_t element_size, size_t bytes) {
  uintptr_t all = reinterpret_cast<uintptr_t>(data);
  for (const int64_t stride : {strides.batch, strides.head, strides.row}) {
    all |= static_cast<uintptr_t>(stride) * element_size;
  }
  return all % bytes == 0;
}

Params params_of(const QuantizeProblem& p, const QuantizeArguments& args, const Cut& cut) {
  Params out;
  out.x = args.x;
  out.out = static_cast<uint8_t*>(args.x_out);
  out.scale = args.scale;
  out.mean = p.has_mean ? args.mean : nullptr;
  out.cu_seqlens = p.packed ? args.cu_seqlens : nullptr;
  out.seqlens = p.seqlens.present ? args.seqlens : nullptr;
  out.cu_seqlens_stride = p.cu_seqlens.batch;
  out.seqlens_stride = p.seqlens.batch;
  out.x_stride = strides_of(p.x);
  out.out_stride = strides_of(p.x_out);
  out.scale_stride = {p.scale.batch, p.scale.head, p.scale.block};
  out.mean_batch = p.mean.batch;
  out.mean_head = p.mean.head;
  out.total = p.total;
  const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  out.batch = narrow(p.batch);
  out.heads = narrow(p.heads);
  out.rows = narrow(p.rows);
  out.head_dim = narrow(p.head_dim);
  out.scale_batches = narrow(p.scale_batches);
  out.scale_heads = narrow(p.scale_heads);
  out.scale_blocks = narrow(p.scale_blocks);
  out.block = narrow(cut.block);
  out.by_block = attention::divisor(static_cast<uint32_t>(cut.block));
  out.span = narrow(cut.span);
  out.tile_rows = narrow(cut.tile_rows);
  out.tiles_a_span = narrow(cut.tiles_a_span);
  out.tiles = narrow(cut.tiles);
  out.input = p.dtype == DType::f32 ? Input::f32 : p.dtype == DType::f16 ? Input::f16 : Input::bf16;
  out.e5m2 = p.out_dtype == DType::f8e5m2;
  out.whole_chunks = p.head_dim % kChunk == 0 && are_aligned(args.x, p.x, size_of(p.dtype), 16) &&
                     are_aligned(args.x_out, p.x_out, 1, kChunk);
  const auto chunks = static_cast<uint32_t>((p.head_dim + kChunk - 1) / kChunk);
  out.lanes = narrow(std::clamp<uint32_t>(std::bit_ceil(chunks), 1, 32));
  return out;
}

cudaError_t launch_all(const Params& params, bool in_tiles, cudaStream_t stream) {
  if (params.mean != nullptr) {
    if (const cudaError_t error = find_means(params, stream); error != cudaSuccess) return error;
  }
  if (in_tiles) return quantize_tiles(params, stream);
  for (auto* const step : {&clear_scales, &find_largest, &convert_rows, &finish_scales}) {
    if (const cudaError_t error = step(params, stream); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

Status run(const QuantizeProblem& p, const QuantizeArguments& args, const DeviceInfo& device,
           Stream stream) {
  if (const std::string sentence = refusal(p, device, build::targets::quantize_sm80);
      !sentence.empty()) {
    return unsupported("{}", sentence);
  }
  const host::DeviceGuard guard(device.device.index);
  if (guard.error() != cudaSuccess) {
    return host::cuda_failure(kName, "choosing its GPU", guard.error());
  }
  const Cut cut = cut_of(p);
  // Without a tile nobody else writes the scales.
  const cudaError_t error = launch_all(params_of(p, args, cut), cut.in_tiles && cut.tiles > 0,
                                       static_cast<cudaStream_t>(stream.handle));
  return error == cudaSuccess ? Status() : host::cuda_failure(kName, "the launch", error);
}

}  // namespace flashcore::cuda::quantize::rows

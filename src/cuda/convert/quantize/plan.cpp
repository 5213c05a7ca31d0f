#include "cuda/convert/quantize/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "cuda/convert/quantize/params.hpp"
#include "cuda/convert/quantize/supports.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::convert::quantize {
namespace {

constexpr const char* kFamily = "convert";

// Returns whether every chunk of eight elements begins at a multiple of `bytes`.
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
  out.x_stride = host::row_stride(p.x);
  out.out_stride = host::row_stride(p.x_out);
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
  out.tiles_per_span = narrow(cut.tiles_per_span);
  out.tiles = narrow(cut.tiles);
  out.input = p.dtype == DType::f32 ? Input::f32 : p.dtype == DType::f16 ? Input::f16 : Input::bf16;
  out.e5m2 = p.out_dtype == DType::f8e5m2;
  out.whole_chunks = p.head_dim % kChunk == 0 && are_aligned(args.x, p.x, size_of(p.dtype), 16) &&
                     are_aligned(args.x_out, p.x_out, 1, kChunk);
  const auto chunks = static_cast<uint32_t>((p.head_dim + kChunk - 1) / kChunk);
  out.lanes = narrow(std::clamp<uint32_t>(std::bit_ceil(chunks), 1, 32));
  return out;
}

// The end of names of instances.
std::string kind_of(const Params& p) {
  const std::string type = p.input == Input::f32   ? "_f32"
                           : p.input == Input::f16 ? "_f16"
                                                   : "_bf16";
  return p.whole_chunks ? type + "_whole" : type;
}

// Groups that lie in a tile take one launch. Others take four: scales become 0, then the largest
// magnitudes; rows are converted; scales become themselves.
Status launch_all(const launch::Launcher& launcher, const Params& p, bool in_tiles) {
  const auto grid = [](int64_t blocks) {
    return launch::Grid{.blocks = dim3(static_cast<unsigned int>(blocks))};
  };
  const auto start = [&, kind = kind_of(p)](const char* kernel, int64_t blocks) {
    return launcher.launch(kFamily, kernel + kind, grid(blocks), p);
  };
  const auto set_scales = [&](bool finish) {
    const int64_t scales = int64_t{p.scale_batches} * p.scale_heads * p.scale_blocks;
    return launcher.launch(kFamily, "scales", grid((scales + kThreads - 1) / kThreads), p, finish);
  };
  const int64_t entries = int64_t{p.heads} * p.batch;
  FLASHCORE_RETURN_IF_ERROR(launcher.status());
  if (p.mean != nullptr) {
    const int64_t strips = (p.head_dim + kMeanColumns - 1) / kMeanColumns;
    FLASHCORE_RETURN_IF_ERROR(start("find_means", strips * entries));
  }
  if (in_tiles) return start("quantize_tiles", p.tiles * entries);
  FLASHCORE_RETURN_IF_ERROR(set_scales(false));
  FLASHCORE_RETURN_IF_ERROR(start("find_largest", p.tiles * entries));
  FLASHCORE_RETURN_IF_ERROR(start("convert_rows", p.tiles * entries));
  return set_scales(true);
}

}  // namespace

Status run(const QuantizeProblem& p, const QuantizeArguments& args, const DeviceInfo& device,
           Stream stream) {
  if (const std::string sentence = refusal(p, device, build::targets::convert); !sentence.empty()) {
    return unsupported("{}", sentence);
  }
  const Cut cut = cut_of(p);
  // Without a tile nothing else writes the scales.
  return launch_all(launch::Launcher(kName, device.device.index, stream), params_of(p, args, cut),
                    cut.in_tiles && cut.tiles > 0);
}

}  // namespace flashcore::cuda::convert::quantize

#include "cuda/decode_sm80/split_kv/plan.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/launch.hpp"
#include "cuda/decode_sm80/split_kv/supports.hpp"
#include "cuda/host/device_guard.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/row_strides.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {
namespace {

constexpr std::string_view kName = "decode_sm80";
constexpr int64_t kChunkBytes = 16, kPairElements = 2;
constexpr int64_t kAlignment = 256;  // of each array in the workspace

struct Planned {
  Params params;
  Instance instance;
  unsigned int blocks;
  int device;
  // Bytes from the beginning of the workspace.
  int64_t rows_at, o_at, bytes;
};

attention::Divisor by(int64_t d) {
  return attention::divisor(static_cast<uint32_t>(std::clamp<int64_t>(d, 1, INT32_MAX)));
}

OutputType output_type(DType dtype) {
  if (dtype == DType::f16) return OutputType::f16;
  return dtype == DType::bf16 ? OutputType::bf16 : OutputType::f32;
}

void set_cache(Params& params, const ForwardProblem& p) {
  attention::KvCacheParams& cache = params.cache;
  const Paging& paging = p.paging;
  cache.table_batch = paging.flat ? 0 : paging.table_batch;
  cache.table_page = paging.table_page;
  cache.flat = paging.present && paging.flat;
  cache.table_pages = static_cast<int>(paging.table_pages);
  cache.num_pages = static_cast<int>(paging.num_pages);
  cache.page_size = static_cast<int>(paging.page_size);
  cache.by_page_size = by(paging.page_size);
  cache.indptr.step = p.kv_indptr.batch;
  cache.last_page_len.step = p.kv_last_page_len.batch;
  cache.leftpad.step = p.cache_leftpad.batch;
}

KeyScales key_scales(const ScaleInput& scale) {
  return {nullptr, scale.batch, scale.head, scale.block};
}

// Everything but the pointers.
Params make_params(const ForwardProblem& p, bool batch_invariant) {
  using attention::softcap::finite;
  Params params{};
  host::set_forward_params(params, p);
  set_cache(params, p);
  params.band = p.band;
  params.softmax_scale = p.softmax_scale;
  if (p.softcap > 0) {
    // Natural units in the place of those of log2.
    const double scale = p.softmax_scale, cap = p.softcap;
    params.softcap = {finite(scale / cap), p.softmax_scale, p.softcap};
  }
  params.sinks = {nullptr, 0, p.sinks.head};
  params.alibi_slopes = {nullptr, p.alibi_slopes.batch, p.alibi_slopes.head};
  params.k_scale = key_scales(p.k_scale);
  params.v_scale = key_scales(p.v_scale);
  params.by_scale_block = by(p.kv_scale_block);
  params.scaled = p.k_scale.present || p.v_scale.present;
  params.e5m2 = p.kv_dtype == DType::f8e5m2;
  params.batch_invariant = batch_invariant;
  params.o_type = output_type(p.o_dtype);
  params.group = static_cast<int>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  params.by_group = by(params.group);
  params.unit_rows = static_cast<int>(std::min<int64_t>(kTileRows, p.seqlen_q * params.group));
  return params;
}

// Whether the rows of K or V are aligned 16-byte chunks, except for where it begins.
bool has_chunks(const RowStrides& stride, const ForwardProblem& p, int64_t head_dim) {
  const int64_t lead = p.paging.present ? p.paging.num_pages : p.packed ? 1 : p.batch;
  const int64_t rows = p.paging.present ? p.paging.page_size : p.packed ? p.total_kv : p.seqlen_kv;
  return head_dim * static_cast<int64_t>(size_of(p.kv_dtype)) % kChunkBytes == 0 &&
         host::misaligned_rows("", stride, p.kv_dtype, lead, p.heads_kv, rows).empty();
}

bool has_pairs(const ForwardProblem& p, const void* q) {
  return p.q.batch % kPairElements == 0 && p.q.head % kPairElements == 0 &&
         p.q.row % kPairElements == 0 && reinterpret_cast<uintptr_t>(q) % 4 == 0;
}

void bind_cache(Params& params, const ForwardProblem& p, const Arguments& args) {
  attention::KvCacheParams& cache = params.cache;
  if (p.paging.present) cache.pages = p.paging.flat ? args.kv_indices : args.page_table;
  cache.indptr.data = p.kv_indptr.present ? args.kv_indptr : nullptr;
  cache.last_page_len.data = p.kv_last_page_len.present ? args.kv_last_page_len : nullptr;
  cache.leftpad.data = p.cache_leftpad.present ? args.cache_leftpad : nullptr;
  cache.page_status = p.page_status.present ? args.page_status : nullptr;
}

// The pointers of a run, and what follows from how they are aligned.
void bind(Params& params, const ForwardProblem& p, const Arguments& args) {
  host::bind_forward_params(params, p, args);
  bind_cache(params, p, args);
  params.sinks.data = p.sinks.present ? args.sinks : nullptr;
  params.alibi_slopes.data = p.alibi_slopes.present ? args.alibi_slopes : nullptr;
  params.k_scale.data = p.k_scale.present ? args.k_scale : nullptr;
  params.v_scale.data = p.v_scale.present ? args.v_scale : nullptr;
  params.chunks = has_chunks(p.k, p, p.head_dim_qk) && has_chunks(p.v, p, p.head_dim_v) &&
                  host::is_aligned(args.k) && host::is_aligned(args.v);
  params.pairs = has_pairs(p, args.q);
}

// Of the largest sizes alone. False: more bytes than there can be.
bool place_workspace(Planned& planned, const ForwardProblem& p, int64_t units) {
  const auto end_of = [](int64_t begin, int64_t bytes) {
    const int64_t end = sum_of({begin, bytes, kAlignment - 1});
    return end == kTooLarge ? end : end / kAlignment * kAlignment;
  };
  const int64_t rows = product_of({units, planned.params.unit_rows});
  planned.rows_at = end_of(0, product_of({p.batch, int64_t{sizeof(EntryUnits)}}));
  planned.o_at = end_of(planned.rows_at, product_of({rows, int64_t{sizeof(float2)}}));
  planned.bytes = end_of(planned.o_at, product_of({rows, p.head_dim_v, int64_t{sizeof(float)}}));
  return planned.bytes != kTooLarge;
}

Status run(const ForwardProblem& p, const Planned& planned, const Arguments& args,
           std::span<std::byte> workspace, Stream stream) {
  Params params = planned.params;
  bind(params, p, args);
  params.entry_units = reinterpret_cast<EntryUnits*>(workspace.data());
  params.partial_rows = reinterpret_cast<float2*>(workspace.data() + planned.rows_at);
  params.partial_o = reinterpret_cast<float*>(workspace.data() + planned.o_at);
  const host::DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess)
    return host::cuda_failure(kName, "choosing its GPU", guard.error());
  auto* const cuda_stream = static_cast<cudaStream_t>(stream.handle);
  if (p.heads_kv > 0 && p.seqlen_kv > 0) {
    const cudaError_t error =
        find_instance(planned.instance).launch(params, planned.blocks, cuda_stream);
    if (error != cudaSuccess) return host::cuda_failure(kName, "the launch", error);
  }
  const cudaError_t error = combine_parts(params, cuda_stream);
  if (error != cudaSuccess) return host::cuda_failure(kName, "the launch that joins parts", error);
  return {};
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  Planned planned{};
  planned.device = context.device.device.index;
  planned.params = make_params(p, context.batch_invariant);
  planned.instance = {p.dtype == DType::f16 ? InputType::f16 : InputType::bf16, config_index(p)};
  if (p.heads_q == 0 || (p.packed ? p.total_q == 0 : p.batch == 0 || p.seqlen_q == 0)) {
    return PlannedKernel{.run = [](const Arguments&, std::span<std::byte>, Stream) -> Status {
      return {};  // no output has an element
    }};
  }
  const int64_t units = unit_count(p, context);
  planned.blocks =
      static_cast<unsigned int>(std::clamp<int64_t>(units, 1, block_count(p, context.device)));
  planned.params.most_units = static_cast<int>(units);
  if (!place_workspace(planned, p, units)) {
    return unsupported("kernel {}: workspace: is larger than memory can be", kName);
  }
  const host::DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess)
    return host::cuda_failure(kName, "choosing its GPU", guard.error());
  if (const cudaError_t error = find_instance(planned.instance).prepare(); error != cudaSuccess) {
    return host::cuda_failure(kName, "preparing the kernel", error);
  }
  if (const cudaError_t error = prepare_combine(); error != cudaSuccess) {
    return host::cuda_failure(kName, "preparing to join parts", error);
  }
  return PlannedKernel{
      .workspace_bytes = static_cast<size_t>(planned.bytes),
      .run = [p, planned](const Arguments& args, std::span<std::byte> workspace, Stream stream) {
        return run(p, planned, args, workspace, stream);
      }};
}

}  // namespace

Kernel kernel() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .automatic = false,
          .by_name_because = "not yet gated on a GPU",
          .reads_caches = true,
          .targets = build::targets::decode_sm80,
          .refuses =
              [](const ForwardProblem& p, const PlanContext& context) {
                return refusal(p, context, build::targets::decode_sm80);
              },
          .plan = plan};
}

}  // namespace flashcore::cuda::decode_sm80::split_kv

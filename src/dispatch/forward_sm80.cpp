#include "dispatch/forward_sm80.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "cuda/forward_sm80/config.hpp"
#include "cuda/forward_sm80/launch.hpp"
#include "dispatch/cuda_support.hpp"
#include "dispatch/device_guard.hpp"
#include "dispatch/forward_sm80_refusal.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

namespace sm80 = cuda::forward_sm80;

// Keys and values of a section of heads that runs at once: half of an A100's or H100's L2.
constexpr int64_t kSectionBytes = int64_t{20} << 20;
constexpr uintptr_t kChunkBytes = 16;

struct Planned {
  sm80::Params params;
  sm80::Instance instance;  // features: whatever the pointers are
  unsigned int blocks;
  int device;
};

sm80::Matrix matrix(const RowStrides& stride, const sm80::Config& config) {
  return {nullptr, stride.batch, stride.head, stride.row, 2 * stride.row * config.copied_rows()};
}

sm80::PairMatrix pair_matrix(const PairInput& input) {
  return {nullptr, input.batch, input.head, input.query, input.key};
}

sm80::ElementType element_type(DType dtype) {
  if (dtype == DType::f16) return sm80::ElementType::f16;
  return dtype == DType::bf16 ? sm80::ElementType::bf16 : sm80::ElementType::f32;
}

sm80::Diagonal diagonal(Alignment alignment) {
  switch (alignment) {
    case Alignment::top_left:
      return sm80::Diagonal::top_left;
    case Alignment::bottom_right:
      return sm80::Diagonal::bottom_right;
    case Alignment::given:
      return sm80::Diagonal::given;
  }
  return sm80::Diagonal::top_left;
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kChunkBytes == 0;
}

// Whether the rows of a tensor are aligned 16-byte chunks, but for where it begins.
bool has_chunks(const RowStrides& stride, const ForwardProblem& p, int64_t heads, int64_t rows,
                int64_t head_dim) {
  return head_dim % 8 == 0 &&
         misaligned_rows("", stride, p.dtype, p.packed ? 1 : p.batch, heads, rows).empty();
}

// Everything but the pointers.
sm80::Params make_params(const ForwardProblem& p, const sm80::Config& config) {
  sm80::Params params{};
  params.q = matrix(p.q, config);
  params.k = matrix(p.k, config);
  params.v = matrix(p.v, config);
  params.o_batch = p.o.batch, params.o_head = p.o.head, params.o_row = p.o.row;
  params.lse_batch = p.lse.batch, params.lse_head = p.lse.head, params.lse_row = p.lse.row;
  params.batch = static_cast<int>(p.batch);
  params.heads_q = static_cast<int>(p.heads_q);
  params.heads_kv = static_cast<int>(p.heads_kv);
  params.seqlen_q = static_cast<int>(p.seqlen_q);
  params.seqlen_kv = static_cast<int>(p.seqlen_kv);
  params.total_q = static_cast<int>(p.total_q);
  params.total_kv = static_cast<int>(p.total_kv);
  params.head_dim_qk = static_cast<int>(p.head_dim_qk);
  params.head_dim_v = static_cast<int>(p.head_dim_v);
  params.cu_seqlens_q.step = p.cu_seqlens_q.batch;
  params.cu_seqlens_kv.step = p.cu_seqlens_kv.batch;
  params.seqlens_q.step = p.seqlens_q.batch;
  params.seqlens_kv.step = p.seqlens_kv.batch;
  params.causal_offsets.step = p.causal_offsets.batch;
  params.band = p.band;
  params.diagonal = diagonal(p.alignment);
  params.causal_offset = p.causal_offset;
  params.softmax_scale = p.softmax_scale;
  params.sinks = {nullptr, 0, p.sinks.head};

  params.q_tiles = static_cast<int>((p.seqlen_q + config.block_q() - 1) / config.block_q());
  const int64_t heads = std::max<int64_t>(p.batch * p.heads_q, 1);
  const int64_t group = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
  const int64_t head_bytes = std::max<int64_t>(2 * p.seqlen_kv * (p.head_dim_qk + p.head_dim_v), 1);
  params.section_heads =
      static_cast<int>(std::clamp<int64_t>(kSectionBytes / head_bytes * group, 1, heads));
  params.longest_first = p.band.right >= 0 && params.q_tiles > 1;

  params.o_type = element_type(p.o_dtype);
  params.softcap = p.softcap;
  params.bias = pair_matrix(p.bias);
  params.mask = pair_matrix(p.mask);
  params.bias_type = element_type(p.bias.dtype);
  params.alibi_slopes = {nullptr, p.alibi_slopes.batch, p.alibi_slopes.head};
  params.dropout = p.dropout_p > 0;
  params.dropout_threshold =
      static_cast<uint32_t>(std::min<uint64_t>(dropout_threshold(p.dropout_p), UINT32_MAX));
  params.dropout_rescale = dropout_rescale(p.dropout_p);
  return params;
}

// The pointers of a run, and what follows from how they are aligned. True: the plain instance.
bool bind(sm80::Params& params, const ForwardProblem& p, const sm80::Config& config,
          const Arguments& args) {
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  params.q.data = args.q;
  params.k.data = args.k;
  params.v.data = args.v;
  params.o = args.o;
  params.lse = p.has_lse ? static_cast<float*>(args.lse) : nullptr;
  params.cu_seqlens_q.data = p.cu_seqlens_q.present ? args.cu_seqlens_q : nullptr;
  params.cu_seqlens_kv.data = p.cu_seqlens_kv.present ? args.cu_seqlens_kv : nullptr;
  params.seqlens_q.data = p.seqlens_q.present ? args.seqlens_q : nullptr;
  params.seqlens_kv.data = p.seqlens_kv.present ? args.seqlens_kv : nullptr;
  params.causal_offsets.data = p.causal_offsets.present ? args.causal_offsets : nullptr;
  params.sinks.data = p.sinks.present ? args.sinks : nullptr;
  params.bias.data = p.bias.present ? args.bias : nullptr;
  params.mask.data = p.mask.present ? args.mask : nullptr;
  params.alibi_slopes.data = p.alibi_slopes.present ? args.alibi_slopes : nullptr;
  if (params.dropout) params.dropout_key = dropout_key(args.dropout_seed, args.dropout_offset);

  params.chunks_qk = has_chunks(p.q, p, p.heads_q, rows_q, p.head_dim_qk) &&
                     has_chunks(p.k, p, p.heads_kv, rows_kv, p.head_dim_qk) && is_aligned(args.q) &&
                     is_aligned(args.k);
  params.chunks_v = has_chunks(p.v, p, p.heads_kv, rows_kv, p.head_dim_v) && is_aligned(args.v);
  params.whole_chunks = params.chunks_qk && params.chunks_v &&
                        p.head_dim_qk == config.head_dim_qk && p.head_dim_v == config.head_dim_v;
  params.o_vectors = p.o_dtype == p.dtype && has_chunks(p.o, p, p.heads_q, rows_q, p.head_dim_v) &&
                     is_aligned(args.o);
  return params.chunks_qk && params.chunks_v && params.o_vectors;
}

Status cuda_failure(std::string_view what, cudaError_t error) {
  return {StatusCode::device_error,
          fmt::format("kernel forward_sm80: {} failed with {} ({})", what, cudaGetErrorName(error),
                      cudaGetErrorString(error))};
}

Status run(const ForwardProblem& p, const Planned& planned, const Arguments& args, Stream stream) {
  if (planned.blocks == 0) return {};  // no output has an element
  const sm80::Config& config = sm80::kConfigs[static_cast<size_t>(planned.instance.config)];
  sm80::Params params = planned.params;
  sm80::Instance instance = planned.instance;
  if (!bind(params, p, config, args)) instance.features = true;

  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) return cuda_failure("choosing its GPU", guard.error());
  (void)cudaGetLastError();  // an earlier call's error is not this launch's
  const cudaError_t error = sm80::find_instance(instance).launch(
      params, planned.blocks, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) return cuda_failure("the launch", error);
  return {};
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  Planned planned{};
  planned.device = context.device.device.index;
  planned.instance = {.type = p.dtype == DType::f16 ? sm80::InputType::f16 : sm80::InputType::bf16,
                      .config = sm80::choose_config(p.head_dim_qk, p.head_dim_v),
                      .features = !forward_sm80_is_plain(p)};
  planned.params = make_params(p, sm80::kConfigs[static_cast<size_t>(planned.instance.config)]);
  planned.blocks = static_cast<unsigned int>(p.batch * p.heads_q * int64_t{planned.params.q_tiles});

  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) return cuda_failure("choosing its GPU", guard.error());
  sm80::Instance instance = planned.instance;
  for (const bool features : {planned.instance.features, true}) {
    instance.features = features;
    const cudaError_t error = sm80::find_instance(instance).prepare();
    if (error != cudaSuccess) return cuda_failure("preparing the kernel", error);
  }
  return PlannedKernel{
      .workspace_bytes = 0,
      .run = [p, planned](const Arguments& args, std::span<std::byte>, Stream stream) {
        return run(p, planned, args, stream);
      }};
}

}  // namespace

Kernel forward_sm80_kernel() {
  return {.name = "forward_sm80",
          .device = DeviceKind::cuda,
          .automatic = true,
          .refuses =
              [](const ForwardProblem& p, const PlanContext& context) {
                static const std::string targets = build_info().cuda_targets;
                return forward_sm80_refusal(p, context.device, targets);
              },
          .plan = plan};
}

}  // namespace flashcore

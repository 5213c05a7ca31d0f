#include "dispatch/forward_small_sm90.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/launch.hpp"
#include "cuda/tile/tensor_map.hpp"
#include "dispatch/device_guard.hpp"
#include "dispatch/forward_sm80.hpp"
#include "dispatch/forward_small_sm90_refusal.hpp"
#include "dispatch/small_choice.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

namespace small = cuda::forward_small_sm90;
using cuda::tile::TensorLayout;

constexpr uintptr_t kPointerAlignment = 16;
constexpr double kLog2E = 1.4426950408889634;

struct Planned {
  small::Params params;
  small::Instance instance;
  small::Grid grid;
  TensorLayout q, k, v;
  bool has_lse;
  int device;
};

small::Diagonal diagonal(Alignment alignment) {
  switch (alignment) {
    case Alignment::top_left:
      return small::Diagonal::top_left;
    case Alignment::bottom_right:
      return small::Diagonal::bottom_right;
    case Alignment::given:
      return small::Diagonal::given;
  }
  return small::Diagonal::top_left;
}

small::Matrix matrix(const RowStrides& stride) {
  return {nullptr, stride.batch, stride.head, stride.row};
}

TensorLayout layout(const ForwardProblem& p, const RowStrides& stride, int64_t heads, int64_t rows,
                    int64_t head_dim) {
  return {p.packed ? 1 : p.batch, heads, rows, head_dim, stride.batch, stride.head, stride.row};
}

bool entries_vary(const ForwardProblem& p) {
  return p.packed || p.seqlens_q.present || p.seqlens_kv.present || p.causal_offsets.present;
}

// The limits of every entry where they do not vary.
small::BandLimits common_limits(const ForwardProblem& p) {
  Sequence sequence;
  sequence.len_q = p.seqlen_q;
  sequence.len_kv = p.seqlen_kv;
  if (p.alignment == Alignment::bottom_right) sequence.offset = p.seqlen_kv - p.seqlen_q;
  if (p.alignment == Alignment::given) sequence.offset = p.causal_offset;
  return small::small_limits(sequence, p.band);
}

// Everything but the pointers.
small::Params make_params(const ForwardProblem& p) {
  small::Params params{};
  params.q = matrix(p.q);
  params.k = matrix(p.k);
  params.v = matrix(p.v);
  params.o_batch = p.o.batch, params.o_head = p.o.head, params.o_row = p.o.row;
  params.lse_batch = p.lse.batch, params.lse_head = p.lse.head, params.lse_row = p.lse.row;
  params.heads_per_kv_head = p.heads_kv > 0 ? static_cast<int>(p.heads_q / p.heads_kv) : 1;
  params.seqlen_q = static_cast<int>(p.seqlen_q);
  params.seqlen_kv = static_cast<int>(p.seqlen_kv);
  params.head_dim_qk = static_cast<int>(p.head_dim_qk);
  params.head_dim_v = static_cast<int>(p.head_dim_v);
  params.scale_log2 = static_cast<float>(static_cast<double>(p.softmax_scale) * kLog2E);
  params.varies = entries_vary(p);
  params.limits = common_limits(p);
  params.total_q = static_cast<int>(p.total_q);
  params.total_kv = static_cast<int>(p.total_kv);
  params.cu_seqlens_q.step = p.cu_seqlens_q.batch;
  params.cu_seqlens_kv.step = p.cu_seqlens_kv.batch;
  params.seqlens_q.step = p.seqlens_q.batch;
  params.seqlens_kv.step = p.seqlens_kv.batch;
  params.causal_offsets.step = p.causal_offsets.batch;
  params.band = p.band;
  params.diagonal = diagonal(p.alignment);
  params.causal_offset = p.causal_offset;
  return params;
}

void bind(small::Params& params, const ForwardProblem& p, const Arguments& args) {
  params.q.data = args.q;
  params.k.data = args.k;
  params.v.data = args.v;
  params.o = args.o;
  params.lse = p.has_lse ? static_cast<float*>(args.lse) : nullptr;
  if (!params.varies) return;
  params.cu_seqlens_q.data = p.cu_seqlens_q.present ? args.cu_seqlens_q : nullptr;
  params.cu_seqlens_kv.data = p.cu_seqlens_kv.present ? args.cu_seqlens_kv : nullptr;
  params.seqlens_q.data = p.seqlens_q.present ? args.seqlens_q : nullptr;
  params.seqlens_kv.data = p.seqlens_kv.present ? args.seqlens_kv : nullptr;
  params.causal_offsets.data = p.causal_offsets.present ? args.causal_offsets : nullptr;
}

bool is_aligned(const Arguments& args) {
  for (const void* const pointer : {args.q, args.k, args.v, static_cast<const void*>(args.o)}) {
    if (reinterpret_cast<uintptr_t>(pointer) % kPointerAlignment != 0) return false;
  }
  return true;
}

Status cuda_failure(std::string_view what, cudaError_t error) {
  return {StatusCode::device_error,
          fmt::format("kernel forward_small_sm90: {} failed with {} ({})", what,
                      cudaGetErrorName(error), cudaGetErrorString(error))};
}

cudaError_t encode(small::Maps& maps, const Planned& planned, DType dtype, const Arguments& args) {
  const CUtensorMapDataType type =
      dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const auto one = [&](CUtensorMap& map, const void* base, const TensorLayout& tensor, int rows) {
    return cuda::tile::encode_tensor_map(map, type, base, tensor, rows, small::kPanelColumns);
  };
  // Without keys nothing is copied, and extents of 0 cannot be encoded.
  if (planned.k.rows == 0 || planned.q.rows == 0) return cudaSuccess;
  cudaError_t error = one(maps.q, args.q, planned.q, small::kBlockQ);
  if (error == cudaSuccess) error = one(maps.k, args.k, planned.k, small::kBlockKv);
  if (error == cudaSuccess) error = one(maps.v, args.v, planned.v, small::kBlockKv);
  return error;
}

Status run(const ForwardProblem& p, const Planned& planned, const Arguments& args, Stream stream) {
  small::Params params = planned.params;
  bind(params, p, args);
  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) return cuda_failure("choosing its GPU", guard.error());
  small::Maps maps{};
  cudaError_t error = encode(maps, planned, p.dtype, args);
  if (error != cudaSuccess) return cuda_failure("describing the tensors", error);
  (void)cudaGetLastError();  // an earlier call's error is not this launch's
  error = small::find_instance(planned.instance)
              .launch(maps, params, planned.grid, params.early,
                      static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) return cuda_failure("the launch", error);
  return {};
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  Planned planned{};
  planned.params = make_params(p);
  planned.instance = {
      .type = p.dtype == DType::f16 ? small::InputType::f16 : small::InputType::bf16,
      .config = small::choose_config(p.head_dim_qk, p.head_dim_v, p.seqlen_kv),
      .whole = forward_small_sm90_is_whole(p)};
  planned.grid = {static_cast<unsigned int>((p.seqlen_q + small::kBlockQ - 1) / small::kBlockQ),
                  static_cast<unsigned int>(p.heads_q), static_cast<unsigned int>(p.batch)};
  planned.q = layout(p, p.q, p.heads_q, rows_q, p.head_dim_qk);
  planned.k = layout(p, p.k, p.heads_kv, rows_kv, p.head_dim_qk);
  planned.v = layout(p, p.v, p.heads_kv, rows_kv, p.head_dim_v);
  planned.has_lse = p.has_lse;
  planned.params.early = context.early_start;
  planned.device = context.device.device.index;

  // Copies need pointers at multiples of 16 bytes; what begins elsewhere is another kernel's.
  Result<PlannedKernel> unaligned = forward_sm80_kernel().plan(p, context);
  if (!unaligned.ok()) return unaligned.status();
  if (planned.grid.q_tiles == 0 || planned.grid.heads == 0 || planned.grid.batch == 0) {
    return unaligned;  // no output has an element
  }
  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) return cuda_failure("choosing its GPU", guard.error());
  const cudaError_t error = small::find_instance(planned.instance).prepare();
  if (error != cudaSuccess) return cuda_failure("preparing the kernel", error);
  const size_t workspace_bytes = unaligned->workspace_bytes;
  return PlannedKernel{
      .workspace_bytes = workspace_bytes,
      .run = [p, planned, other = std::move(unaligned->run)](
                 const Arguments& args, std::span<std::byte> workspace, Stream stream) {
        if (!is_aligned(args)) return other(args, workspace, stream);
        return run(p, planned, args, stream);
      }};
}

// What the choice goes by is known without data, and does not depend on the batch where that is
// forbidden.
std::string declines(const ForwardProblem& p, const PlanContext& context) {
  if (context.batch_invariant)
    return "batch_invariant: is set, and the choice depends on the batch";
  if (entries_vary(p))
    return "entries have lengths or diagonals of their own: its time is not known";
  const SmallChoice choice = choose_small(p, context.device.multiprocessors);
  if (choice.is_small()) return {};
  return fmt::format("would take about {:.1f} us, the next kernel {:.1f}", choice.small_us,
                     choice.block_us);
}

}  // namespace

Kernel forward_small_sm90_kernel() {
  return {.name = "forward_small_sm90",
          .device = DeviceKind::cuda,
          .automatic = true,
          .refuses =
              [](const ForwardProblem& p, const PlanContext& context) {
                static const std::string targets = build_info().cuda_targets;
                return forward_small_sm90_refusal(p, context.device, targets);
              },
          .declines = declines,
          .plan = plan};
}

}  // namespace flashcore

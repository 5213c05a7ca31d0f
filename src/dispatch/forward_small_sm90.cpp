#include "dispatch/forward_small_sm90.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/launch.hpp"
#include "cuda/tile/tensor_map.hpp"
#include "dispatch/cuda_launch.hpp"
#include "dispatch/device_guard.hpp"
#include "dispatch/forward_sm80.hpp"
#include "dispatch/forward_sm90.hpp"
#include "dispatch/forward_small_params.hpp"
#include "dispatch/forward_small_sm90_refusal.hpp"
#include "dispatch/pointer_cache.hpp"
#include "dispatch/small_choice.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

namespace small = cuda::forward_small_sm90;
using cuda::tile::TensorLayout;

constexpr std::string_view kName = "forward_small_sm90";

struct Planned {
  small::Params params;
  small::Instance instance;
  small::Grid grid;
  TensorLayout q, k, v;
  int device;
  bool early;
};

TensorLayout layout(const ForwardProblem& p, const RowStrides& stride, int64_t heads, int64_t rows,
                    int64_t head_dim) {
  return {p.packed ? 1 : p.batch, heads, rows, head_dim, stride.batch, stride.head, stride.row};
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

using MapCache = PointerCache<small::Maps, 3>;

Status run(const ForwardProblem& p, const Planned& planned, MapCache& cache, const Arguments& args,
           Stream stream) {
  small::Params params = planned.params;
  bind_forward_params(params, p, args);
  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) return cuda_failure(kName, "choosing its GPU", guard.error());
  small::Maps maps;
  cudaError_t error = cache.get(
      {args.q, args.k, args.v}, maps,
      [&](small::Maps& made) { return encode(made, planned, p.dtype, args); }, cudaSuccess);
  if (error != cudaSuccess) return cuda_failure(kName, "describing the tensors", error);
  (void)cudaGetLastError();  // an earlier call's error is not this launch's
  error = small::find_instance(planned.instance)
              .launch(maps, params, planned.grid, planned.early,
                      static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) return cuda_failure(kName, "the launch", error);
  return {};
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  Planned planned{};
  planned.params = small_params(p);
  planned.grid = {static_cast<unsigned int>((p.seqlen_q + small::kBlockQ - 1) / small::kBlockQ),
                  static_cast<unsigned int>(p.heads_q), static_cast<unsigned int>(p.batch)};
  const int64_t blocks =
      int64_t{small::kRanks} * planned.grid.q_tiles * planned.grid.heads * planned.grid.batch;
  // Which of the two computes an entry may not depend on the others where that is promised.
  const bool one_wave = !context.batch_invariant && blocks <= context.device.multiprocessors;
  planned.instance = {
      .type = p.dtype == DType::f16 ? small::InputType::f16 : small::InputType::bf16,
      .config = small::choose_config(p.head_dim_qk, p.head_dim_v, one_wave),
      .whole = forward_small_sm90_is_whole(p)};
  planned.q = layout(p, p.q, p.heads_q, rows_q, p.head_dim_qk);
  planned.k = layout(p, p.k, p.heads_kv, rows_kv, p.head_dim_qk);
  planned.v = layout(p, p.v, p.heads_kv, rows_kv, p.head_dim_v);
  planned.early = context.early_start;
  planned.device = context.device.device.index;

  // Copies need pointers at multiples of 16 bytes; what begins elsewhere is another kernel's.
  Result<PlannedKernel> unaligned = forward_sm80_kernel().plan(p, context);
  if (!unaligned.ok()) return unaligned.status();
  if (planned.grid.q_tiles == 0 || planned.grid.heads == 0 || planned.grid.batch == 0) {
    return unaligned;  // no output has an element
  }
  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) return cuda_failure(kName, "choosing its GPU", guard.error());
  const cudaError_t error = small::find_instance(planned.instance).prepare();
  if (error != cudaSuccess) return cuda_failure(kName, "preparing the kernel", error);
  PlannedKernel own{.run = [p, planned, cache = std::make_shared<MapCache>()](
                               const Arguments& args, std::span<std::byte>, Stream stream) {
    return run(p, planned, *cache, args, stream);
  }};
  return where_aligned(std::move(own), std::move(*unaligned));
}

// The kernel that runs where this one does not.
NextKernel next_kernel(const ForwardProblem& p, const PlanContext& context) {
  static const Kernel sm90 = forward_sm90_kernel();
  const bool takes = sm90.automatic && sm90.refuses(p, context).empty() &&
                     (!sm90.declines || sm90.declines(p, context).empty());
  return takes ? NextKernel::forward_sm90 : NextKernel::forward_sm80;
}

// What the choice goes by is known without data, and does not depend on the batch where that is
// forbidden.
std::string declines(const ForwardProblem& p, const PlanContext& context) {
  if (context.batch_invariant)
    return "batch_invariant: is set, and the choice depends on the batch";
  if (small_entries_vary(p))
    return "entries have lengths or diagonals of their own: its time is not known";
  const SmallChoice choice =
      choose_small(p, context.device.multiprocessors, next_kernel(p, context));
  if (choice.is_small()) return {};
  if (!choice.is_measured) return "the problem is larger than those it was measured on";
  return fmt::format("would take about {:.1f} us, the next kernel {:.1f}", choice.small_us,
                     choice.next_us);
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

#include "cuda/forward_sm90/common/mapped_plan.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cuda/forward_sm80/throughput/plan.hpp"
#include "cuda/forward_sm90/latency/config.hpp"
#include "cuda/forward_sm90/latency/supports.hpp"
#include "cuda/host/cuda_launch.hpp"
#include "cuda/host/device_guard.hpp"
#include "cuda/host/latency_params.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "problem/status.hpp"
#include "tuning/small_decision.hpp"

namespace flashcore {
namespace {

namespace small = cuda::forward_sm90::latency;
using cuda::host::TensorLayout;

constexpr int kBoxRows = small::kBlockQ;
static_assert(kBoxRows == small::kBlockKv);

struct Planned {
  MappedKernel kernel;
  small::Grid grid;
  bool early;
  small::Params params;
  TensorLayout q, k, v;
  int device;
  cudaFunction_t function;
};

TensorLayout layout(const ForwardProblem& p, const RowStrides& stride, int64_t heads, int64_t rows,
                    int64_t head_dim) {
  return {p.packed ? 1 : p.batch, heads, rows, head_dim, stride.batch, stride.head, stride.row};
}

// Without keys no block uses the maps of K and V, but they are fetched ahead: any map does.
// Problems without queries do not get here.
cudaError_t encode(small::Maps& maps, const Planned& planned, DType dtype, const Arguments& args) {
  const CUtensorMapDataType type =
      dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const auto one = [&](CUtensorMap& map, const void* base, const TensorLayout& tensor) {
    return cuda::host::encode_tensor_map(map, type, base, tensor, kBoxRows, small::kPanelColumns);
  };
  cudaError_t error = one(maps.q, args.q, planned.q);
  maps.k = maps.v = maps.q;
  if (planned.k.rows == 0) return error;  // extents of 0 cannot be encoded
  if (error == cudaSuccess) error = one(maps.k, args.k, planned.k);
  if (error == cudaSuccess) error = one(maps.v, args.v, planned.v);
  return error;
}

using MapCache = PointerCache<small::Maps, 3>;

Status run(const ForwardProblem& p, const Planned& planned, MapCache& cache, const Arguments& args,
           Stream stream) {
  small::Params params = planned.params;
  bind_forward_params(params, p, args);
  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess)
    return cuda_failure(planned.kernel.name, "choosing its GPU", guard.error());
  small::Maps maps;
  cudaError_t error = cache.get(
      {args.q, args.k, args.v}, maps,
      [&](small::Maps& made) { return encode(made, planned, p.dtype, args); }, cudaSuccess);
  if (error != cudaSuccess)
    return cuda_failure(planned.kernel.name, "describing the tensors", error);
  error = planned.kernel.instance.launch(planned.function, maps, params, planned.grid,
                                         planned.early, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) return cuda_failure(planned.kernel.name, "the launch", error);
  return {};
}

}  // namespace

small::InputType mapped_input_type(const ForwardProblem& p) {
  return p.dtype == DType::f16 ? small::InputType::f16 : small::InputType::bf16;
}

Result<PlannedKernel> plan_mapped(const ForwardProblem& p, const PlanContext& context,
                                  MappedKernel kernel) {
  Result<PlannedKernel> unaligned = forward_sm80_throughput_kernel().plan(p, context);
  if (!unaligned.ok()) return unaligned.status();
  if (p.seqlen_q == 0 || p.heads_q == 0 || p.batch == 0) {
    return unaligned;  // no output has an element
  }
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  const int64_t q_tiles = (p.seqlen_q + kernel.block_q - 1) / kernel.block_q;
  Planned planned{.kernel = kernel,
                  .grid = {static_cast<unsigned int>(q_tiles), static_cast<unsigned int>(p.heads_q),
                           static_cast<unsigned int>(p.batch)},
                  .early = context.early_start,
                  .params = small_params(p),
                  .q = layout(p, p.q, p.heads_q, rows_q, p.head_dim_qk),
                  .k = layout(p, p.k, p.heads_kv, rows_kv, p.head_dim_qk),
                  .v = layout(p, p.v, p.heads_kv, rows_kv, p.head_dim_v),
                  .device = context.device.device.index,
                  .function = nullptr};
  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) {
    return cuda_failure(planned.kernel.name, "choosing its GPU", guard.error());
  }
  const cudaError_t error = planned.kernel.instance.prepare(planned.function);
  if (error != cudaSuccess) {
    return cuda_failure(planned.kernel.name, "preparing the kernel", error);
  }
  PlannedKernel own{.run = [p, planned, cache = std::make_shared<MapCache>()](
                               const Arguments& args, std::span<std::byte>, Stream stream) {
    return run(p, planned, *cache, args, stream);
  }};
  return where_aligned(std::move(own), std::move(*unaligned));
}

Kernel mapped_kernel(std::string_view name, std::string_view targets,
                     bool (SmallChoice::*is_chosen)() const,
                     Result<PlannedKernel> (*plan)(const ForwardProblem&, const PlanContext&)) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .automatic = true,
          .targets = targets,
          .refuses =
              [targets](const ForwardProblem& p, const PlanContext& context) {
                return forward_sm90_latency_refusal(p, context.device, targets);
              },
          .declines =
              [is_chosen](const ForwardProblem& p, const PlanContext& context) {
                return sm90_latency_declines(p, context, is_chosen);
              },
          .plan = plan};
}

}  // namespace flashcore

#include "cuda/forward_sm90/common/mapped_plan.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cuda/attention/latency/key_tiles.hpp"
#include "cuda/forward_sm90/common/latency_supports.hpp"
#include "cuda/host/device_guard.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/latency_params.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::forward_sm90 {
namespace {

using host::TensorLayout;

constexpr int kBoxRows = attention::latency::kBlockKv;  // of Q as well
constexpr int kPanelColumns = 64;                       // 128 bytes, the swizzle

struct Planned {
  MappedKernel kernel;
  Grid grid;
  bool early;
  Params params;
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
cudaError_t encode(Maps& maps, const Planned& planned, DType dtype, const Arguments& args) {
  const CUtensorMapDataType type =
      dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const auto one = [&](CUtensorMap& map, const void* base, const TensorLayout& tensor) {
    return host::encode_tensor_map(map, type, base, tensor, kBoxRows, kPanelColumns);
  };
  cudaError_t error = one(maps.q, args.q, planned.q);
  maps.k = maps.v = maps.q;
  if (planned.k.rows == 0) return error;  // extents of 0 cannot be encoded
  if (error == cudaSuccess) error = one(maps.k, args.k, planned.k);
  if (error == cudaSuccess) error = one(maps.v, args.v, planned.v);
  return error;
}

using MapCache = host::PointerCache<Maps, 3>;

Status run(const ForwardProblem& p, const Planned& planned, MapCache& cache, const Arguments& args,
           Stream stream) {
  Params params = planned.params;
  host::bind_forward_params(params, p, args);
  const host::DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess)
    return host::cuda_failure(planned.kernel.name, "choosing its GPU", guard.error());
  Maps maps;
  cudaError_t error = cache.get(
      {args.q, args.k, args.v}, maps,
      [&](Maps& made) { return encode(made, planned, p.dtype, args); }, cudaSuccess);
  if (error != cudaSuccess)
    return host::cuda_failure(planned.kernel.name, "describing the tensors", error);
  error = planned.kernel.instance.launch(planned.function, maps, params, planned.grid,
                                         planned.early, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) return host::cuda_failure(planned.kernel.name, "the launch", error);
  return {};
}

}  // namespace

InputType mapped_input_type(const ForwardProblem& p) {
  return p.dtype == DType::f16 ? InputType::f16 : InputType::bf16;
}

Result<PlannedKernel> plan_mapped(const ForwardProblem& p, const PlanContext& context,
                                  MappedKernel kernel) {
  if (p.seqlen_q == 0 || p.heads_q == 0 || p.batch == 0) {  // no output has an element
    return PlannedKernel{
        .run = [](const Arguments&, std::span<std::byte>, Stream) { return Status(); }};
  }
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  const int64_t q_tiles = (p.seqlen_q + kernel.block_q - 1) / kernel.block_q;
  Planned planned{.kernel = kernel,
                  .grid = {static_cast<unsigned int>(q_tiles), static_cast<unsigned int>(p.heads_q),
                           static_cast<unsigned int>(p.batch)},
                  .early = context.early_start,
                  .params = host::latency_params(p),
                  .q = layout(p, p.q, p.heads_q, rows_q, p.head_dim_qk),
                  .k = layout(p, p.k, p.heads_kv, rows_kv, p.head_dim_qk),
                  .v = layout(p, p.v, p.heads_kv, rows_kv, p.head_dim_v),
                  .device = context.device.device.index,
                  .function = nullptr};
  const host::DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) {
    return host::cuda_failure(planned.kernel.name, "choosing its GPU", guard.error());
  }
  const cudaError_t error = planned.kernel.instance.prepare(planned.function);
  if (error != cudaSuccess) {
    return host::cuda_failure(planned.kernel.name, "preparing the kernel", error);
  }
  return PlannedKernel{.run = [p, planned, cache = std::make_shared<MapCache>()](
                                  const Arguments& args, std::span<std::byte>, Stream stream) {
    return run(p, planned, *cache, args, stream);
  }};
}

Kernel mapped_kernel(std::string_view name, std::string_view targets,
                     Result<PlannedKernel> (*plan)(const ForwardProblem&, const PlanContext&)) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .automatic = true,
          .wants_alignment = true,
          .targets = targets,
          .refuses =
              [targets](const ForwardProblem& p, const PlanContext& context) {
                return latency_refusal(p, context.device, targets);
              },
          .plan = plan};
}

}  // namespace flashcore::cuda::forward_sm90

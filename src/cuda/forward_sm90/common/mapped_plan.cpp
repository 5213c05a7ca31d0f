#include "cuda/forward_sm90/common/mapped_plan.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cuda/attention/latency/key_tiles.hpp"
#include "cuda/forward_sm90/common/latency_supports.hpp"
#include "cuda/forward_sm90/common/maps.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/latency_params.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"

namespace flashcore::cuda::forward_sm90 {
namespace {

using host::TensorLayout;

constexpr int kBoxRows = attention::latency::kBlockKv;  // of Q as well
constexpr int kPanelColumns = 64;                       // 128 bytes, the swizzle

struct Planned {
  launch::Kernel kernel;
  launch::Grid grid;
  Params params;
  TensorLayout q, k, v;
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
           const launch::Launcher& launcher) {
  Params params = planned.params;
  host::bind_forward_params(params, p, args);
  Maps maps;
  const cudaError_t error = cache.get(
      {args.q, args.k, args.v}, maps,
      [&](Maps& made) { return encode(made, planned, p.dtype, args); }, cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("describing the tensors", error));
  return launcher.launch(planned.kernel, planned.grid, params, maps);
}

}  // namespace

Result<PlannedKernel> plan_mapped(const ForwardProblem& p, const PlanContext& context,
                                  const MappedKernel& kernel) {
  if (p.seqlen_q == 0 || p.heads_q == 0 || p.batch == 0) return launch::nothing<PlannedKernel>();
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  const int64_t q_tiles = (p.seqlen_q + kernel.block_q - 1) / kernel.block_q;
  const dim3 blocks(static_cast<unsigned int>(kernel.cluster * q_tiles),
                    static_cast<unsigned int>(p.heads_q), static_cast<unsigned int>(p.batch));
  Planned planned{.kernel = {},
                  .grid = {.blocks = blocks, .early = context.early_start},
                  .params = host::latency_params(p),
                  .q = layout(p, p.q, p.heads_q, rows_q, p.head_dim_qk),
                  .k = layout(p, p.k, p.heads_kv, rows_kv, p.head_dim_qk),
                  .v = layout(p, p.v, p.heads_kv, rows_kv, p.head_dim_v)};
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(
      launch::Loader(kernel.name, device).load(planned.kernel, kernel.family, kernel.instance));
  return launch::planned<PlannedKernel>(
      kernel.name, device, 0,
      [p, planned, cache = std::make_shared<MapCache>()](
          const Arguments& args, std::span<std::byte>, const launch::Launcher& launcher) {
        return run(p, planned, *cache, args, launcher);
      });
}

Variant mapped_variant(std::string_view name, std::string_view targets,
                       Result<PlannedKernel> (*plan)(const ForwardProblem&, const PlanContext&)) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .automatic = true,
          .wants_alignment = true,
          .targets = targets,
          .supports = latency_supports(),
          .plan = plan};
}

}  // namespace flashcore::cuda::forward_sm90

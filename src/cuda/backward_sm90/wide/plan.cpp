#include "cuda/backward_sm90/wide/plan.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cuda/backward_sm90/common/row_plan.hpp"
#include "cuda/backward_sm90/wide/config.hpp"
#include "cuda/backward_sm90/wide/launch.hpp"
#include "cuda/backward_sm90/wide/supports.hpp"
#include "cuda/host/device_guard.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::backward_sm90::wide {
namespace {

constexpr std::string_view kName = "backward_sm90_wide";
// What a section of heads that runs at once reads again and again: half of an H100's L2.
constexpr int64_t kSectionBytes = int64_t{20} << 20;

using MapCache = host::PointerCache<Maps, 7>;

struct Planned {
  BackwardProblem problem;
  Instance instance;
  OptionParams params;
  bool option_rows;
  int64_t notes, not_finite, sink_terms;  // where they begin in the workspace
  int device;
};

// Under a causal mask longest first, by sections of heads whose `rows` of two matrices stay in L2.
attention::TileOrder tile_order(const ForwardProblem& p, int64_t heads, int64_t rows,
                                int64_t tiles) {
  const int64_t head_bytes = std::max<int64_t>(product_of({rows, 2, kHeadDim, 2}), 1);
  return {.batch_heads = static_cast<uint32_t>(heads),
          .q_tiles = static_cast<uint32_t>(tiles),
          .section_heads =
              static_cast<uint32_t>(std::clamp<int64_t>(kSectionBytes / head_bytes, 1, heads)),
          .longest_first = p.band.right >= 0};
}

// Everything but the pointers.
OptionParams make_params(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  OptionParams params{};
  set_row_params(params, problem, kBlockQ);
  set_options(params.options, problem);
  const int64_t batch = tile_batch(p);
  params.query_order = tile_order(p, batch * p.heads_q, p.seqlen_kv, params.q_blocks);
  params.key_order =
      tile_order(p, batch * p.heads_kv, p.seqlen_q * params.group, key_tiles_of_head(p, kRows));
  return params;
}

cudaError_t encode(Maps& maps, const BackwardProblem& problem, const BackwardArguments& args) {
  const ForwardProblem& p = problem.forward;
  const struct {
    CUtensorMap& map;
    const void* base;
    const RowStrides& stride;
    bool queries;
    int64_t columns;
  } tensors[] = {{maps.q, args.forward.q, p.q, true, p.head_dim_qk},
                 {maps.k, args.forward.k, p.k, false, p.head_dim_qk},
                 {maps.v, args.forward.v, p.v, false, p.head_dim_v},
                 {maps.d_o, args.d_o, problem.d_o, true, p.head_dim_v},
                 {maps.dq, args.dq, problem.dq, true, p.head_dim_qk},
                 {maps.dk, args.dk, problem.dk, false, p.head_dim_qk},
                 {maps.dv, args.dv, problem.dv, false, p.head_dim_v}};
  const CUtensorMapDataType type =
      p.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  for (const auto& [map, base, stride, queries, columns] : tensors) {
    const cudaError_t error = host::encode_tensor_map(
        map, type, base, tensor_layout(p, stride, queries, columns), kRows, kPanelColumns);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

Status run(const Planned& planned, MapCache& cache, const BackwardArguments& args,
           std::span<std::byte> workspace, Stream stream) {
  const InputType type = planned.instance.type;
  OptionParams params = planned.params;
  bind_row_params(params, planned.problem, args);
  params.notes = reinterpret_cast<float*>(workspace.data() + planned.notes);
  params.not_finite = reinterpret_cast<uint32_t*>(workspace.data() + planned.not_finite);
  bind_options(params.options, planned.problem, args,
               reinterpret_cast<float*>(workspace.data() + planned.sink_terms));
  Maps maps{};
  const host::DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess)
    return host::cuda_failure(kName, "choosing its GPU", guard.error());
  cudaError_t error = cache.get(
      {args.forward.q, args.forward.k, args.forward.v, args.d_o, args.dq, args.dk, args.dv}, maps,
      [&](Maps& made) { return encode(made, planned.problem, args); }, cudaSuccess);
  if (error != cudaSuccess) return host::cuda_failure(kName, "encoding a tensor map", error);
  const auto cuda_stream = static_cast<cudaStream_t>(stream.handle);
  error = planned.option_rows ? begin_option_rows(type, params, cuda_stream)
                              : begin_rows(type, params, cuda_stream);
  if (error == cudaSuccess)
    error = find_instance(planned.instance).launch(maps, params, cuda_stream);
  if (error != cudaSuccess) return host::cuda_failure(kName, "a launch", error);
  error = planned.option_rows ? end_option_rows(type, params, cuda_stream)
                              : end_rows(type, params, cuda_stream);
  return error == cudaSuccess ? Status() : host::cuda_failure(kName, "a launch", error);
}

Result<PlannedBackward> plan(const BackwardProblem& problem, const PlanContext& context) {
  Planned planned{
      .problem = problem,
      .instance = {.type = problem.forward.dtype == DType::f16 ? InputType::f16 : InputType::bf16,
                   .options = needs_option_tiles(problem.forward)},
      .params = make_params(problem),
      .option_rows = needs_option_rows(problem, kHeadDim),
      .notes = 0,
      .not_finite = 0,
      .sink_terms = 0,
      .device = context.device.device.index};
  const Params& params = planned.params;
  WorkspaceParts parts;
  const int64_t rows = product_of({tile_batch(problem.forward), params.heads_q,
                                   static_cast<int64_t>(params.q_blocks), kBlockQ});
  planned.notes = parts.add(product_of({rows, 2}));
  planned.not_finite = parts.add(params.blocks());
  planned.sink_terms = parts.add(problem.d_sinks.present ? rows : 0);
  if (parts.end == kTooLarge) {
    return Status(StatusCode::invalid_argument, "q: needs a workspace larger than memory can be");
  }
  const host::DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess)
    return host::cuda_failure(kName, "choosing its GPU", guard.error());
  const InputType type = planned.instance.type;
  cudaError_t error = planned.option_rows ? prepare_option_rows(type) : prepare_rows(type);
  if (error == cudaSuccess) error = find_instance(planned.instance).prepare();
  if (error != cudaSuccess) return host::cuda_failure(kName, "preparing the kernel", error);
  return PlannedBackward{
      .workspace_bytes = static_cast<size_t>(parts.end),
      .run = [planned, cache = std::make_shared<MapCache>()](
                 const BackwardArguments& args, std::span<std::byte> workspace, Stream stream) {
        return run(planned, *cache, args, workspace, stream);
      }};
}

}  // namespace

Kernel kernel() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .automatic = true,
          .wants_alignment = true,
          .targets = build::targets::backward_sm90_wide,
          .backward = {.supports = supports(), .plan = plan}};
}

}  // namespace flashcore::cuda::backward_sm90::wide

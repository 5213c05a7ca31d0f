#include "cuda/backward_sm90/wide/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cuda/backward_sm90/common/row_plan.hpp"
#include "cuda/backward_sm90/wide/config.hpp"
#include "cuda/backward_sm90/wide/params.hpp"
#include "cuda/backward_sm90/wide/supports.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::wide {
namespace {

constexpr std::string_view kName = "backward_sm90:wide", kFamily = "backward_sm90_wide";
// What a section of heads that runs at once reads again and again: half of an H100's L2.
constexpr int64_t kSectionBytes = int64_t{20} << 20;

using MapCache = host::PointerCache<Maps, 7>;

struct Planned {
  BackwardProblem problem;
  OptionParams params;
  int64_t row_stats, not_finite, sink_terms;  // where they begin in the workspace
  Launches launches;
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
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  OptionParams params = planned.params;
  bind_row_params(params, planned.problem, args);
  params.row_stats = reinterpret_cast<float*>(workspace.data() + planned.row_stats);
  params.not_finite = reinterpret_cast<uint32_t*>(workspace.data() + planned.not_finite);
  bind_options(params.options, planned.problem, args,
               reinterpret_cast<float*>(workspace.data() + planned.sink_terms));
  Maps maps{};
  const cudaError_t error = cache.get(
      {args.forward.q, args.forward.k, args.forward.v, args.d_o, args.dq, args.dk, args.dv}, maps,
      [&](Maps& made) { return encode(made, planned.problem, args); }, cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("encoding a tensor map", error));
  return launch_all<Params>(planned.launches, maps, params, kBlockQ, launcher);
}

Result<PlannedBackward> plan(const BackwardProblem& problem, const PlanContext& context) {
  const ForwardProblem& p = problem.forward;
  const OptionParams params = make_params(problem);
  const int64_t rows =
      product_of({tile_batch(p), params.heads_q, static_cast<int64_t>(params.q_blocks), kBlockQ});
  WorkspaceParts parts;
  Planned planned{.problem = problem,
                  .params = params,
                  .row_stats = parts.add(product_of({rows, 2})),
                  .not_finite = parts.add(params.blocks()),
                  .sink_terms = parts.add(problem.d_sinks.present ? rows : 0),
                  .launches = {.begin_blocks = 0,
                               .tile_blocks = params.blocks(),
                               .end_blocks = params.blocks(),
                               .option_rows = needs_option_rows(problem, kHeadDim),
                               .option_tiles = needs_option_tiles(p)}};
  if (parts.end == kTooLarge) {
    return Status(StatusCode::invalid_argument,
                  "q: needs a workspace of 2^63 bytes or more, wanted less");
  }
  Launches& launches = planned.launches;
  launches.begin_blocks = (rows * kLanes + kRowThreads - 1) / kRowThreads;
  const std::string_view element = launch::element_name(p.dtype);
  const int device = context.device.device.index;
  const launch::Loader loader(kName, device);
  FLASHCORE_RETURN_IF_ERROR(load_rows(launches, loader, kFamily, element, "end"));
  FLASHCORE_RETURN_IF_ERROR(
      loader.load(launches.tiles, kFamily,
                  fmt::format("wide_{}{}", element, launches.option_tiles ? "_options" : "")));
  return launch::planned<PlannedBackward>(
      kName, device, static_cast<size_t>(parts.end),
      [planned, cache = std::make_shared<MapCache>()](const BackwardArguments& args,
                                                      std::span<std::byte> workspace,
                                                      const launch::Launcher& launcher) {
        return run(planned, *cache, args, workspace, launcher);
      });
}

}  // namespace

Variant variant() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .wants_alignment = true,
          .sources = kFamily,
          .targets = build::targets::backward_sm90_wide,
          .backward = {.supports = supports(), .plan = plan}};
}

}  // namespace flashcore::cuda::backward_sm90::wide

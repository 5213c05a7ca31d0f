#include "cuda/mla_sm90/latent/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/attention/softcap.hpp"
#include "cuda/host/decode_params.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"
#include "cuda/mla_sm90/latent/config.hpp"
#include "cuda/mla_sm90/latent/params.hpp"
#include "cuda/mla_sm90/latent/schedule.hpp"
#include "cuda/mla_sm90/latent/supports.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::mla_sm90::latent {
namespace {

constexpr std::string_view kName = "mla_sm90";
constexpr int64_t kAlignment = 256;  // of each array in the workspace
constexpr double kHeadroom = 8;      // of a reference, in units of log2
constexpr int64_t kJoinBlocks = 16;  // on a multiprocessor
constexpr int64_t kJoinLanes = 32;   // rows that a block of the second kernel looks at, at most
constexpr int64_t kFewParts = 7;     // of a row: one slice joins them

using MapCache = host::PointerCache<Maps, 2>;

struct Planned {
  Params params;
  launch::Kernel kernel, join;
  launch::Grid grid, join_grid;
  bool joins;
  // Bytes from the beginning of the workspace.
  int64_t parts_at, rows_at, o_at, bytes;
};

Params make_params(const ForwardProblem& p, const PlanContext& context) {
  using attention::softcap::finite;
  Params params{};
  host::set_decode_params(params, p, context.batch_invariant);
  params.tree = host::tree_bits_of(p);
  const double natural = p.softcap > 0 ? 1 : p.softmax_scale;
  params.natural = static_cast<float>(natural);
  params.unit = finite(natural * std::numbers::log2e);
  params.headroom = finite(kHeadroom / (natural * std::numbers::log2e));
  params.shares = static_cast<int>(share_count(p, context));
  params.tiles = static_cast<int>(tile_count(p));
  params.tiles_of_query = static_cast<int>(tiles_of_query(p));
  params.rows_of_lead = static_cast<int>(rows_of_keys(p));
  params.policy = params.tiles <= kFewTiles ? kEvictFirst : kEvictNormal;
  params.most_units = static_cast<int>(
      most_units(p.batch, tiles_of_keys(p), params.shares, context.batch_invariant));
  params.join_rows = static_cast<int>(p.heads_q * (p.packed ? p.total_q : p.batch * p.seqlen_q));
  return params;
}

// Lays out the workspace by the largest sizes. Returns false if it has 2^63 bytes or more.
bool place_workspace(Planned& planned, const ForwardProblem& p) {
  const auto end_of = [](int64_t begin, int64_t bytes) {
    const int64_t end = sum_of({begin, bytes, kAlignment - 1});
    return end == kTooLarge ? end : end / kAlignment * kAlignment;
  };
  const Params& params = planned.params;
  const int64_t rows =
      product_of({slot_count(p.batch, tiles_of_keys(p), params.shares, params.batch_invariant),
                  params.tiles, int64_t{kRows}});
  planned.parts_at = end_of(0, product_of({params.tiles, params.shares, params.most_units,
                                           static_cast<int64_t>(sizeof(Unit))}));
  planned.rows_at =
      end_of(planned.parts_at, product_of({p.batch, static_cast<int64_t>(sizeof(Parts))}));
  planned.o_at = end_of(planned.rows_at, product_of({rows, int64_t{sizeof(float2)}}));
  planned.bytes = end_of(planned.o_at, product_of({rows, kHeadDimV, int64_t{sizeof(float)}}));
  return planned.bytes != kTooLarge;
}

cudaError_t encode(Maps& maps, const ForwardProblem& p, const Arguments& args) {
  const CUtensorMapDataType type =
      p.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  // A box is of heads of one query.
  const host::TensorLayout q{p.packed ? 1 : p.batch,
                             p.packed ? p.total_q : p.seqlen_q,
                             p.heads_q,
                             p.head_dim_qk,
                             p.q.batch,
                             p.q.row,
                             p.q.head};
  const host::TensorLayout k{lead_of_keys(p), p.heads_kv, rows_of_keys(p), p.head_dim_qk,
                             p.k.batch,       p.k.head,   p.k.row};
  const cudaError_t error =
      host::encode_panel_map(maps.q, type, args.q, q, kGroupRows, kPanelColumns, true);
  return error != cudaSuccess
             ? error
             : host::encode_panel_map(maps.k, type, args.k, k, kGroupRows, kPanelColumns, true);
}

Status run(const ForwardProblem& p, const Planned& planned, MapCache& cache, const Arguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  Params params = planned.params;
  host::bind_decode_params(params, p, args);
  params.tree.data = p.tree_mask.present ? args.tree_mask : nullptr;
  params.units = reinterpret_cast<Unit*>(workspace.data());
  params.parts = reinterpret_cast<Parts*>(workspace.data() + planned.parts_at);
  params.partial_rows = reinterpret_cast<float2*>(workspace.data() + planned.rows_at);
  params.partial_o = reinterpret_cast<float*>(workspace.data() + planned.o_at);
  Maps maps{};
  const cudaError_t error = cache.get(
      {args.q, args.k}, maps, [&](Maps& made) { return encode(made, p, args); }, cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("describing the tensors", error));
  FLASHCORE_RETURN_IF_ERROR(launcher.launch(planned.kernel, planned.grid, params, maps));
  return planned.joins ? launcher.launch(planned.join, planned.join_grid, params) : Status{};
}

Result<PlannedKernel> plan_latent(const ForwardProblem& p, const PlanContext& context) {
  Planned planned{};
  planned.params = make_params(p, context);
  planned.grid = {.blocks = dim3(static_cast<unsigned int>(planned.params.tiles),
                                 static_cast<unsigned int>(planned.params.shares)),
                  .early = context.early_start};
  planned.joins = has_joins(p, context);
  const int64_t rows = planned.params.join_rows;
  const int64_t most = kJoinBlocks * context.device.multiprocessors;
  // The bits of a row depend on its slices, so these must not depend on the batch.
  const bool many = !context.batch_invariant && rows <= context.device.multiprocessors &&
                    planned.params.shares > kFewParts * p.batch;
  planned.join_grid = {.blocks = dim3(static_cast<unsigned int>(
                           std::max(std::min(rows, most), (rows + kJoinLanes - 1) / kJoinLanes))),
                       .early = true};
  if (!place_workspace(planned, p)) {
    return unsupported("kernel {}: workspace: needs 2^63 bytes or more, wanted less", kName);
  }
  const int device = context.device.device.index;
  {
    const launch::Loader loader(kName, device);
    FLASHCORE_RETURN_IF_ERROR(
        loader.load(planned.kernel, kName, fmt::format("mla_{}", launch::element_name(p.dtype))));
    FLASHCORE_RETURN_IF_ERROR(
        loader.load(planned.join, kName, fmt::format("join{}", many ? kManySlices : 1)));
  }
  return launch::planned<PlannedKernel>(
      kName, device, static_cast<size_t>(planned.bytes),
      [p, planned, cache = std::make_shared<MapCache>()](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run(p, planned, *cache, args, workspace, launcher);
      });
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const bool has_rows = p.heads_q > 0 && p.seqlen_q > 0 && (p.packed ? p.total_q > 0 : p.batch > 0);
  return has_rows ? plan_latent(p, context) : launch::nothing<PlannedKernel>();
}

}  // namespace

Variant variant() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .automatic = true,
          .targets = build::targets::mla_sm90,
          .supports = supports(),
          .plan = plan};
}

}  // namespace flashcore::cuda::mla_sm90::latent

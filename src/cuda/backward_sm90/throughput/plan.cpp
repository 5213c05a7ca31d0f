#include "cuda/backward_sm90/throughput/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/backward_sm90/common/pair_plan.hpp"
#include "cuda/backward_sm90/common/row_plan.hpp"
#include "cuda/backward_sm90/throughput/bias_plan.hpp"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/backward_sm90/throughput/params.hpp"
#include "cuda/backward_sm90/throughput/split/config.hpp"
#include "cuda/backward_sm90/throughput/split/supports.hpp"
#include "cuda/backward_sm90/throughput/supports.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/mask_bits.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::throughput {
namespace {

constexpr std::string_view kName = "backward_sm90";
// What a section of heads that runs at once reads and adds to again and again, Q, dO and the sums of
// dQ: half of an H100's L2, or most of it for so few heads.
constexpr int64_t kSectionBytes = int64_t{20} << 20, kMostSectionBytes = int64_t{40} << 20;
// The fewest heads of a section: under a causal mask with atomic and with deterministic additions, and without one.
constexpr int64_t kCausalHeads = 4, kCausalHeadsDeterministic = 8, kHeadsDeterministic = 2;

// The variants: a block per tile, a cluster per tile, a block per tile with pairs.
enum class Way { plain, split, pairs };

struct MapCaches {
  host::PointerCache<Maps, 6> tensors;
  host::PointerCache<CUtensorMap, 1> bias;
};

// Where the parts of the workspace begin.
struct Parts {
  int64_t sums, row_stats, turns, not_finite, next_tile, starts_fall, tasks, sink_terms, bits;
  int64_t slope_terms, bias_marks, end;
};

struct Planned {
  BackwardProblem problem;
  const Config& config;
  PairParams params;
  Parts parts;
  Launches launches;
  bool pairs;
  host::MaskBitsPlan mask;  // of a problem with a mask
  launch::Kernel pack_mask = {}, add_sinks = {}, add_slopes = {};
  BiasPlan bias = {};
};

// Heads whose tiles of one place follow each other: under a causal mask, so that the last wave is of
// the shortest tiles, and if additions are deterministic, since tiles of one
// head wait for each other; a wave's at most, of a
// packed batch one of its longest sequence. By measurement (docs/backward.md).
int64_t section_heads(const ForwardProblem& p, const Config& config, bool deterministic,
                      int multiprocessors) {
  const int64_t group = p.heads_q / p.heads_kv;
  const int64_t head_bytes =
      std::max<int64_t>(product_of({8, config.head_dim, p.seqlen_q, group}), 1);
  const int64_t heads = kSectionBytes / head_bytes;
  const bool causal = p.band.right >= 0;
  if (deterministic) {
    const int64_t tiles = (p.seqlen_kv + kBlockKeys - 1) / kBlockKeys;  // of the longest sequence
    const int64_t wave = multiprocessors / std::max<int64_t>(tiles, 1);
    return std::max(std::min(heads, wave),
                    causal ? kCausalHeadsDeterministic : kHeadsDeterministic);
  }
  return causal ? std::min(std::max(heads, kCausalHeads), kMostSectionBytes / head_bytes) : heads;
}

// Returns whether deterministic additions are faster, too: they write no zeros before and read no sums
// after, and heads of so few keys wait little. By measurement (docs/backward.md).
bool is_fast_deterministic(const ForwardProblem& p, const Config& config, int multiprocessors) {
  constexpr int64_t kMostKeyDims = 512 * 128;
  const int64_t tiles = key_tiles_of_head(p, kBlockKeys);
  return product_of({tiles, kBlockKeys, config.head_dim}) <= kMostKeyDims &&
         product_of({tile_batch(p), p.heads_kv, tiles}) >= multiprocessors;
}

attention::TileOrder tile_order(const ForwardProblem& p, const Config& config, bool deterministic,
                                int multiprocessors) {
  const int64_t tiles = key_tiles_of_head(p, kBlockKeys), heads = tile_batch(p) * p.heads_kv;
  return {.batch_heads = static_cast<uint32_t>(heads),
          .q_tiles = static_cast<uint32_t>(tiles),
          .section_heads = static_cast<uint32_t>(std::clamp<int64_t>(
              section_heads(p, config, deterministic, multiprocessors), 1, heads)),
          .longest_first = true};
}

// Everything but the pointers.
PairParams make_params(const BackwardProblem& problem, const Config& config, bool deterministic,
                       int multiprocessors) {
  PairParams params{};
  set_row_params(params, problem, config.block_q);
  set_options(params.options, problem);
  params.order = tile_order(problem.forward, config, deterministic, multiprocessors);
  params.deterministic = deterministic;
  return params;
}

// `blocks`: of queries in all heads; `mask_words`: of a packed mask; `bias_items`: of dBias.
Parts lay_out(const BackwardProblem& problem, const Params& params, const Config& config,
              int64_t blocks, int64_t mask_words, int64_t bias_items) {
  Parts parts{};
  WorkspaceParts all;
  parts.sums = all.add(product_of({blocks, config.block_sums()}));
  parts.row_stats = all.add(product_of({blocks, 2 * config.block_q}));
  parts.turns = all.add(product_of({blocks, kConsumers}));
  parts.not_finite = all.add(params.order.size());
  parts.next_tile = all.add(1);
  parts.starts_fall = all.add(1);
  parts.tasks = all.add(product_of({params.order.size(), sizeof(EntryTask) / sizeof(float)}));
  parts.sink_terms = all.add(problem.d_sinks.present ? product_of({blocks, config.block_q}) : 0);
  parts.bits = all.add(mask_words);
  parts.slope_terms = all.add(problem.d_alibi_slopes.present
                                  ? product_of({params.order.size(), params.group, kConsumerWarps})
                                  : 0);
  parts.bias_marks = all.add(bias_items);
  parts.end = all.end;
  return parts;
}

void bind(PairParams& params, const Planned& planned, const BackwardArguments& args,
          std::span<std::byte> workspace) {
  bind_row_params(params, planned.problem, args);
  const auto part = [&]<class T>(T*& pointer, int64_t begin) {
    pointer = reinterpret_cast<T*>(workspace.data() + begin);
  };
  part(params.sums, planned.parts.sums);
  part(params.row_stats, planned.parts.row_stats);
  part(params.turns, planned.parts.turns);
  part(params.not_finite, planned.parts.not_finite);
  part(params.next_tile, planned.parts.next_tile);
  part(params.starts_fall, planned.parts.starts_fall);
  part(params.tasks, planned.parts.tasks);
  float* sink_terms = nullptr;
  part(sink_terms, planned.parts.sink_terms);
  bind_options(params.options, planned.problem, args, sink_terms);
}

cudaError_t encode(Maps& maps, const BackwardProblem& problem, const BackwardArguments& args,
                   const Config& config) {
  const ForwardProblem& p = problem.forward;
  const struct {
    CUtensorMap& map;
    const void* base;
    const RowStrides& stride;
    bool queries;
    int64_t columns;
    int box_rows;
  } tensors[] = {{maps.q, args.forward.q, p.q, true, p.head_dim_qk, config.block_q},
                 {maps.k, args.forward.k, p.k, false, p.head_dim_qk, kBlockKeys},
                 {maps.v, args.forward.v, p.v, false, p.head_dim_v, kBlockKeys},
                 {maps.d_o, args.d_o, problem.d_o, true, p.head_dim_v, config.block_q},
                 {maps.dk, args.dk, problem.dk, false, p.head_dim_qk, kWarpgroupKeys},
                 {maps.dv, args.dv, problem.dv, false, p.head_dim_v, kWarpgroupKeys}};
  const CUtensorMapDataType type =
      p.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  for (const auto& [map, base, stride, queries, columns, box_rows] : tensors) {
    const cudaError_t error = host::encode_tensor_map(
        map, type, base, tensor_layout(p, stride, queries, columns), box_rows, kPanelColumns);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// Returns the parts of a tile, where tiles are split; with batch_invariant for every batch the same.
int splits_of(const ForwardProblem& p, const PlanContext& context) {
  return context.batch_invariant ? split::kSplits.front()
                                 : split::splits_of(p, context.device.multiprocessors);
}

// `splits`: blocks that share a tile.
Launches launches_of(const BackwardProblem& problem, const Params& params, const Config& config,
                     int64_t blocks, int splits) {
  const int64_t threads = blocks * config.block_q * (config.head_dim / kLaneDims);
  const int64_t tiles = params.order.size(), items = blocks + tiles;
  return {.begin_blocks = (threads + kRowThreads - 1) / kRowThreads,
          .tile_blocks = tiles * splits,
          .end_blocks = params.deterministic ? (items + kItems - 1) / kItems : items,
          .option_rows = needs_option_rows(problem, config.head_dim),
          .option_tiles = needs_option_tiles(problem.forward)};
}

Status load(Planned& planned, const launch::Loader& loader, int config, int splits) {
  const bool deterministic = planned.params.deterministic;
  Launches& launches = planned.launches;
  const std::string prefix =
      fmt::format("{}_config{}", launch::element_name(planned.problem.forward.dtype), config);
  if (planned.pairs) {
    FLASHCORE_RETURN_IF_ERROR(loader.load(planned.pack_mask, kName, "pack_mask_bits"));
    FLASHCORE_RETURN_IF_ERROR(loader.load(launches.zero_hidden_rows, kName, "zero_hidden_rows"));
    FLASHCORE_RETURN_IF_ERROR(loader.load(launches.begin, kName, prefix + "_begin_options"));
    FLASHCORE_RETURN_IF_ERROR(loader.load(launches.end, kName, prefix + "_finish_pairs"));
    FLASHCORE_RETURN_IF_ERROR(loader.load(planned.add_sinks, kName, "add_pair_sinks"));
    FLASHCORE_RETURN_IF_ERROR(loader.load(planned.add_slopes, kName, prefix + "_add_pair_slopes"));
    FLASHCORE_RETURN_IF_ERROR(load_bias(planned.bias, loader, kName, prefix));
    return loader.load(launches.tiles, kName, prefix + "_pairs");
  }
  FLASHCORE_RETURN_IF_ERROR(
      load_rows(launches, loader, kName, prefix, deterministic ? "finish" : "end"));
  if (splits > 1) {
    return loader.load(launches.tiles, kName, fmt::format("split{}_{}", splits, prefix));
  }
  const std::string_view suffix = launches.option_tiles ? "_options"
                                  : deterministic       ? "_deterministic"
                                                        : "";
  return loader.load(launches.tiles, kName, fmt::format("{}{}", prefix, suffix));
}

// With pairs: the mask's bits, rows, tiles, rows, and gradients of options.
Status launch_pairs(const Planned& planned, const Maps& maps, const PairParams& params,
                    const attention::PackMask& mask, const launch::Launcher& launcher) {
  const ForwardProblem& p = planned.problem.forward;
  const Launches& launches = planned.launches;
  const auto grid = [](int64_t blocks) {
    return launch::Grid{.blocks = dim3(static_cast<unsigned int>(blocks))};
  };
  if (mask.mask != nullptr) {
    FLASHCORE_RETURN_IF_ERROR(launcher.launch(planned.pack_mask, grid(planned.mask.blocks), mask));
  }
  FLASHCORE_RETURN_IF_ERROR(zero_hidden_rows(launches, params, launcher));
  const OptionParams& of_rows = params;
  FLASHCORE_RETURN_IF_ERROR(launcher.launch(launches.begin, grid(launches.begin_blocks), of_rows));
  FLASHCORE_RETURN_IF_ERROR(
      launcher.launch(launches.tiles, grid(launches.tile_blocks), maps, params));
  FLASHCORE_RETURN_IF_ERROR(launcher.launch(launches.end, grid(launches.end_blocks), params));
  if (params.options.sink_terms != nullptr) {
    FLASHCORE_RETURN_IF_ERROR(
        launcher.launch(planned.add_sinks, grid(p.heads_q), params, planned.config.block_q));
  }
  if (params.pairs.slope_terms == nullptr) return {};
  const int64_t sums = params.pairs.d_slopes_by_batch ? p.batch * p.heads_q : p.heads_q;
  return launcher.launch(planned.add_slopes, grid(sums), params);
}

// Binds what pairs read; returns the launch that packs the mask, which has no mask where there is none.
Status bind_all_pairs(PairParams& params, attention::PackMask& mask, const Planned& planned,
                      MapCaches& caches, const BackwardArguments& args,
                      std::span<std::byte> workspace, const launch::Launcher& launcher) {
  const ForwardProblem& p = planned.problem.forward;
  bind_pairs(params.pairs, p, args.forward);
  if (planned.problem.d_alibi_slopes.present) {
    params.pairs.d_slopes = static_cast<float*>(args.d_alibi_slopes);
    params.pairs.slope_terms =
        reinterpret_cast<float*>(workspace.data() + planned.parts.slope_terms);
  }
  if (p.mask.present) {
    mask = planned.mask.params;
    host::bind_mask_bits(mask, args.forward.mask,
                         reinterpret_cast<uint32_t*>(workspace.data() + planned.parts.bits));
    params.pairs.bits = mask.bits;
  }
  if (!params.pairs.bias_tiles) return {};
  const cudaError_t error = caches.bias.get(
      {args.forward.bias}, params.pairs.bias_map,
      [&](CUtensorMap& made) {
        return encode_bias_map(made, p, args.forward.bias, planned.config.block_q);
      },
      cudaSuccess);
  return launcher.failed("encoding a tensor map", error);
}

Status run(const Planned& planned, MapCaches& caches, const BackwardArguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  PairParams params = planned.params;
  bind(params, planned, args, workspace);
  Maps maps{};
  const cudaError_t error = caches.tensors.get(
      {args.forward.q, args.forward.k, args.forward.v, args.d_o, args.dk, args.dv}, maps,
      [&](Maps& made) { return encode(made, planned.problem, args, planned.config); }, cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("encoding a tensor map", error));
  if (planned.pairs) {
    attention::PackMask mask{};
    FLASHCORE_RETURN_IF_ERROR(
        bind_all_pairs(params, mask, planned, caches, args, workspace, launcher));
    FLASHCORE_RETURN_IF_ERROR(launch_pairs(planned, maps, params, mask, launcher));
    return launch_bias(planned.bias, maps, params, args.d_bias,
                       reinterpret_cast<uint32_t*>(workspace.data() + planned.parts.bias_marks),
                       launcher);
  }
  const OptionParams& options = params;
  return launch_all<Params>(planned.launches, maps, options, planned.config.block_q, launcher);
}

Result<PlannedBackward> plan(const BackwardProblem& problem, const PlanContext& context, Way way) {
  const ForwardProblem& p = problem.forward;
  const bool is_split = way == Way::split, pairs = way == Way::pairs;
  const int index = pairs ? pair_config_of(p) : config_of(p);
  const Config& config = kConfigs[static_cast<size_t>(index)];
  const int multiprocessors = context.device.multiprocessors;
  const bool deterministic = context.deterministic || context.batch_invariant || is_split ||
                             pairs || needs_option_tiles(p) ||
                             is_fast_deterministic(p, config, multiprocessors);
  const int splits = is_split ? splits_of(p, context) : 1;
  PairParams params = make_params(problem, config, deterministic, multiprocessors);
  host::MaskBitsPlan mask{};
  const BiasPlan bias = pairs ? plan_bias(problem, multiprocessors) : BiasPlan{};
  if (pairs) set_pairs(params.pairs, problem);
  if (p.mask.present) mask = host::plan_mask_bits(p, attention::BitsAlong::queries);
  const int64_t blocks =
      product_of({tile_batch(p), params.heads_q, static_cast<int64_t>(params.q_blocks)});
  Planned planned{.problem = problem,
                  .config = config,
                  .params = params,
                  .parts = lay_out(problem, params, config, blocks, mask.words, bias.items),
                  .launches = {},
                  .pairs = pairs,
                  .mask = mask,
                  .bias = bias};
  if (planned.parts.end == kTooLarge) {
    return Status(StatusCode::invalid_argument,
                  "q: needs a workspace of 2^63 bytes or more, wanted less");
  }
  planned.launches = launches_of(problem, params, config, blocks, splits);
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(load(planned, launch::Loader(kName, device), index, splits));
  return launch::planned<PlannedBackward>(
      kName, device, static_cast<size_t>(planned.parts.end),
      [planned, caches = std::make_shared<MapCaches>()](const BackwardArguments& args,
                                                        std::span<std::byte> workspace,
                                                        const launch::Launcher& launcher) {
        return run(planned, *caches, args, workspace, launcher);
      });
}

Variant variant(std::string_view name, const BackwardSupports& supports, Way way) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .wants_alignment = true,
          .targets = build::targets::backward_sm90,
          .backward = {.supports = supports,
                       .plan = [way](const BackwardProblem& problem, const PlanContext& context) {
                         return plan(problem, context, way);
                       }}};
}

}  // namespace

std::vector<Variant> variants() {
  return {variant("backward_sm90:split", split::supports(), Way::split),
          variant(kName, supports(), Way::plain),
          variant("backward_sm90:options", option_supports(), Way::pairs)};
}

}  // namespace flashcore::cuda::backward_sm90::throughput

#include "cuda/forward_sm90/throughput/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/forward_sm90/throughput/boxes.hpp"
#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/params.hpp"
#include "cuda/forward_sm90/throughput/supports.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "cuda/host/cache_params.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/mask_bits.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/host/unique_name.hpp"
#include "cuda/launch/launch.hpp"
#include "kernel/problem_for_heuristics.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::forward_sm90::throughput {
namespace {

// Keys and values of a section of heads that runs at once: half of an H100's L2 and some.
constexpr int64_t kSectionBytes = int64_t{32} << 20;
constexpr std::string_view kName = "forward_sm90_throughput";
constexpr size_t kCounterBytes = 256;  // a counter, alone in its cache lines

using MapCache = host::PointerCache<Maps, 4>;
using OptionMapCache = host::PointerCache<OptionMaps, 5>;

struct Planned {
  PagedParams params;
  launch::Kernel kernel;
  int config;  // the row of kConfigs, or of kOptionConfigs
  bool options;
  unsigned int blocks;
  bool has_keys;
  bool counts;  // tiles are handed out by a counter, which lies in the workspace
};

const Config& config_of(const Planned& planned) {
  const auto row = static_cast<size_t>(planned.config);
  return planned.options ? kOptionConfigs[row] : kConfigs[row];
}

// Everything but the pointers that all kernels have.
PagedParams make_params(const ForwardProblem& p, const Config& config) {
  PagedParams params{};
  host::set_forward_params(params, p);
  params.left = p.band.left;
  params.right = p.band.right;
  params.scale_log2 = static_cast<float>(p.scale_log2());
  params.scale = p.softmax_scale;
  if (p.softcap > 0) {
    params.softcap = attention::softcap_params(p.softmax_scale, p.softcap);
    params.near_cap = attention::near_cap(p.softmax_scale, p.softcap);
  }
  params.sinks_step = p.sinks.head;

  params.heads = static_cast<uint32_t>(p.heads_q);
  params.heads_per_kv_head = static_cast<uint32_t>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  params.section_rows = host::section_rows(p, kSectionBytes);
  params.queries = static_cast<int>(p.seqlen_q);
  params.limits = attention::band_limits(p.band.left, p.band.right, common_offset(p),
                                         static_cast<int>(p.seqlen_kv));
  params.varies = entries_vary(p);
  params.packed = p.packed;
  params.order = host::tile_order(p, config.block_q(), params.section_rows);
  if (p.paging.present) {
    host::set_cache_params(params.cache, p);
    const Boxes boxes = boxes_of(p, config);
    params.box_rows = boxes.rows;
    params.boxes = config.block_kv / boxes.rows;
    params.whole_rows = boxes.whole_rows;
    params.k_steps = boxes.k.steps;
    params.v_steps = boxes.v.steps;
    params.varies = true;  // each has its own pages
  }
  return params;
}

// Tiles of a launch; of a packed batch, whose lengths only the device knows, at most so many.
int64_t most_tiles(const ForwardProblem& p, const Params& params, int block_q) {
  if (!p.packed) return params.order.size();
  const int64_t entry_tiles = params.order.q_tiles;
  return p.heads_q *
         std::min(p.batch * entry_tiles, attention::packed_slots(p.total_q, p.batch, block_q));
}

// "192x128": queries and keys of a tile.
std::string config_text(const Config& config) {
  return fmt::format("{}x{}", config.block_q(), config.block_kv);
}

// The row of kConfigs that a config names, or the choice.
int best_tile(const ForwardProblem& p, const PlanContext& context, ChooseTile choose_tile) {
  for (const int row : tile_candidates(p)) {
    if (config_text(kConfigs[static_cast<size_t>(row)]) == context.config) return row;
  }
  return choose_tile(problem_for_heuristics(p, context), context.device);
}

std::string own_tile(const ForwardProblem& p, const PlanContext& context, ChooseTile choose_tile) {
  return config_text(kConfigs[static_cast<size_t>(best_tile(p, context, choose_tile))]);
}

std::vector<std::string> other_tiles(const ForwardProblem& p, const PlanContext& context,
                                     ChooseTile choose_tile) {
  std::vector<std::string> names;
  const int own = best_tile(p, context, choose_tile);
  for (const int row : tile_candidates(p)) {
    if (row != own) names.push_back(config_text(kConfigs[static_cast<size_t>(row)]));
  }
  return names;
}

Planned make_planned(const ForwardProblem& p, const PlanContext& context, ChooseTile choose_tile) {
  Planned planned{};
  const int64_t multiprocessors = context.device.multiprocessors;
  planned.options = has_options(p);
  planned.config = planned.options ? choose_option_config(p.head_dim_qk, p.head_dim_v)
                   : p.paging.present
                       ? choose_paged_config(p.head_dim_qk, p.head_dim_v, has_features(p))
                       : best_tile(p, context, choose_tile);
  const Config& config = config_of(planned);
  planned.params = make_params(p, config);
  planned.params.launch_name = host::unique_name();
  const int64_t tiles = most_tiles(p, planned.params, config.block_q());
  planned.blocks =
      static_cast<unsigned int>(std::min(tiles, multiprocessors * config.blocks_per_sm));
  planned.has_keys = (p.packed_kv() ? p.total_kv : p.seqlen_kv) > 0;
  planned.counts = (is_uneven(p, config) || p.paging.flat) && tiles > planned.blocks;
  return planned;
}

// The pointers of a run.
void bind(PagedParams& params, const ForwardProblem& p, const Arguments& args) {
  host::bind_forward_params(params, p, args);
  params.sinks = p.sinks.present ? args.sinks : nullptr;
  if (p.paging.present) host::bind_cache_params(params.cache, p, args);
}

// The tensor maps for these pointers. Without keys no block uses the maps of K and V, but all are
// fetched ahead: any map does.
cudaError_t encode(Maps& maps, const ForwardProblem& p, const Arguments& args, const Config& config,
                   bool has_keys) {
  const CUtensorMapDataType type =
      p.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const auto one = [&](CUtensorMap& map, const void* base, const RowStrides& stride, int64_t heads,
                       int64_t rows, int64_t columns, int rows_of_box, int64_t lead) {
    const host::TensorLayout layout{lead,         heads,       rows,      columns,
                                    stride.batch, stride.head, stride.row};
    return host::encode_tensor_map(map, type, base, layout, rows_of_box, kPanelColumns);
  };
  const int64_t batch = p.packed ? 1 : p.batch, rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t lead_kv = lead_of_keys(p), rows_kv = rows_of_keys(p);
  const Boxes boxes = p.paging.present ? boxes_of(p, config) : Boxes{};
  const auto keys = [&](CUtensorMap& map, const void* base, const RowStrides& stride,
                        int64_t columns, int stored_columns, const BoxLead& lead) {
    if (!p.paging.present) {
      return one(map, base, stride, p.heads_kv, rows_kv, columns, config.block_kv, lead_kv);
    }
    const host::TensorLayout layout{lead_kv,      p.heads_kv,  rows_kv,   columns,
                                    stride.batch, stride.head, stride.row};
    if (!boxes.whole_rows) return host::encode_group_map(map, type, base, layout);
    return host::encode_group_map(map, type, base, layout, lead.extent, lead.stride, boxes.rows,
                                  stored_columns / kPanelColumns);
  };
  cudaError_t error =
      one(maps.q, args.q, p.q, p.heads_q, rows_q, p.head_dim_qk, kWarpgroupRows, batch);
  if (error == cudaSuccess) {
    error = one(maps.o, args.o, p.o, p.heads_q, rows_q, p.head_dim_v, kWarpRows, batch);
  }
  maps.k = maps.v = maps.q;
  if (!has_keys) return error;
  if (error == cudaSuccess) {
    error = keys(maps.k, args.k, p.k, p.head_dim_qk, config.columns_qk(), boxes.k);
  }
  if (error == cudaSuccess) {
    error = keys(maps.v, args.v, p.v, p.head_dim_v, config.columns_v(), boxes.v);
  }
  return error;
}

Status run(const ForwardProblem& p, const Planned& planned, MapCache& cache, const Arguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  PagedParams params = planned.params;
  bind(params, p, args);
  if (planned.counts) params.counter = reinterpret_cast<unsigned long long*>(workspace.data());
  Maps maps{};
  const cudaError_t error = cache.get(
      {args.q, args.k, args.v, args.o}, maps,
      [&](Maps& made) { return encode(made, p, args, config_of(planned), planned.has_keys); },
      cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("encoding a tensor map", error));
  const launch::Grid grid{.blocks = dim3(planned.blocks)};
  return p.paging.present
             ? launcher.launch(planned.kernel, grid, maps, params)
             : launcher.launch(planned.kernel, grid, maps, static_cast<const Params&>(params));
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context,
                           ChooseTile choose_tile) {
  Planned planned = make_planned(p, context, choose_tile);
  if (planned.blocks == 0) return launch::nothing<PlannedKernel>();
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(
      launch::Loader(kName, device)
          .load(planned.kernel, kName,
                fmt::format("{}_config{}{}{}", launch::element_name(p.dtype), planned.config,
                            has_features(p) ? "_features" : "", p.paging.present ? "_paged" : "")));
  return launch::planned<PlannedKernel>(
      kName, device, planned.counts ? kCounterBytes : 0,
      [p, planned, cache = std::make_shared<MapCache>()](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run(p, planned, *cache, args, workspace, launcher);
      });
}

// ---- the kernel with options of pairs

// Where products are scaled first, scores are in units of log2.
void set_units(OptionParams& params, const ForwardProblem& p) {
  constexpr float kLeastScale = 0x1p-20F;  // its reciprocal leaves natural terms in fp32's range
  params.scales_first = p.softcap > 0 || !(p.softmax_scale >= kLeastScale);
  params.exponent_scale = params.scales_first ? 1.0F : params.scale_log2;
  params.to_scores = params.scales_first ? std::numbers::log2e_v<float> : 1 / p.softmax_scale;
  if (p.softcap > 0) params.natural_cap = {params.softcap.rate, p.softmax_scale, p.softcap};
}

// The launch that packs the mask, and the main one.
struct PlannedOptions {
  Planned main;
  OptionParams params;
  host::MaskBitsPlan bits;  // without a mask, of no block
  launch::Kernel pack;
  size_t bits_at;  // in the workspace

  size_t workspace_bytes() const {
    return bits_at + static_cast<size_t>(bits.words) * sizeof(uint32_t);
  }
};

PlannedOptions make_options(const ForwardProblem& p, const Planned& planned) {
  PlannedOptions options{.main = planned, .params = {}, .bits = {}, .pack = {}, .bits_at = 0};
  OptionParams& params = options.params;
  static_cast<Params&>(params) = planned.params;
  set_units(params, p);
  params.bias = {nullptr, p.bias.batch, p.bias.head, p.bias.query};
  params.bias_is_f16 = p.bias.dtype == DType::f16;
  params.alibi_slopes = {nullptr, p.alibi_slopes.batch, p.alibi_slopes.head};
  // All sequences read the same biases, which L2 then holds.
  params.batch_inside = p.bias.present && p.bias.batch == 0 && p.batch > 1 && !p.packed;
  if (p.mask.present) {
    options.bits = host::plan_mask_bits(p, attention::BitsAlong::keys);
    params.mask = options.bits.params.bits;
  }
  options.bits_at = planned.counts ? kCounterBytes : 0;
  return options;
}

cudaError_t encode_bias(CUtensorMap& map, const ForwardProblem& p, const void* bias) {
  const host::TensorLayout layout{p.bias.batch == 0 ? 1 : p.batch,
                                  p.bias.head == 0 ? 1 : p.heads_q,
                                  p.seqlen_q,
                                  p.seqlen_kv,
                                  p.bias.batch,
                                  p.bias.head,
                                  p.bias.query};
  const CUtensorMapDataType type = p.bias.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                              : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return host::encode_tensor_map(map, type, bias, layout, kWarpgroupRows, kPanelColumns);
}

Status run_options(const ForwardProblem& p, const PlannedOptions& planned, OptionMapCache& cache,
                   const Arguments& args, std::span<std::byte> workspace,
                   const launch::Launcher& launcher) {
  OptionParams params = planned.params;
  host::bind_forward_params(params, p, args);
  params.sinks = p.sinks.present ? args.sinks : nullptr;
  params.alibi_slopes.data = p.alibi_slopes.present ? args.alibi_slopes : nullptr;
  const bool has_bias = p.bias.present && planned.main.has_keys;
  params.bias.data = has_bias ? static_cast<const uint16_t*>(args.bias) : nullptr;
  if (planned.main.counts) params.counter = reinterpret_cast<unsigned long long*>(workspace.data());
  OptionMaps maps{};
  const cudaError_t error = cache.get(
      {args.q, args.k, args.v, args.o, params.bias.data}, maps,
      [&](OptionMaps& made) {
        cudaError_t failure = encode(made, p, args, config_of(planned.main), planned.main.has_keys);
        made.bias = made.q;
        if (failure == cudaSuccess && has_bias) failure = encode_bias(made.bias, p, args.bias);
        return failure;
      },
      cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("encoding a tensor map", error));
  if (planned.bits.blocks > 0) {
    attention::PackMask pack = planned.bits.params;
    auto* const words = reinterpret_cast<uint32_t*>(workspace.data() + planned.bits_at);
    host::bind_mask_bits(pack, args.mask, words);
    params.mask.words = words;
    const launch::Grid grid{.blocks = dim3(static_cast<unsigned int>(planned.bits.blocks))};
    FLASHCORE_RETURN_IF_ERROR(launcher.launch(planned.pack, grid, pack));
  }
  return launcher.launch(planned.main.kernel, {.blocks = dim3(planned.main.blocks)}, maps, params);
}

Result<PlannedKernel> plan_options(const ForwardProblem& p, const PlanContext& context,
                                   ChooseTile choose_tile) {
  const Planned planned = make_planned(p, context, choose_tile);
  if (planned.blocks == 0) return launch::nothing<PlannedKernel>();
  PlannedOptions options = make_options(p, planned);
  const int device = context.device.device.index;
  const launch::Loader loader(kName, device);
  FLASHCORE_RETURN_IF_ERROR(
      loader.load(options.main.kernel, kName,
                  fmt::format("{}_options{}", launch::element_name(p.dtype), planned.config)));
  if (options.bits.blocks > 0) {
    FLASHCORE_RETURN_IF_ERROR(loader.load(options.pack, kName, "pack_mask_bits"));
  }
  return launch::planned<PlannedKernel>(
      kName, device, options.workspace_bytes(),
      [p, options, cache = std::make_shared<OptionMapCache>()](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run_options(p, options, *cache, args, workspace, launcher);
      });
}

Variant variant(std::string_view name, bool paged, ChooseTile choose_tile) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .wants_alignment = true,
          .targets = build::targets::forward_sm90_throughput,
          .supports = paged ? paged_supports() : supports(),
          .plan = [choose_tile](const ForwardProblem& p, const PlanContext& context) {
            return plan(p, context, choose_tile);
          }};
}

}  // namespace

std::vector<Variant> variants(ChooseTile choose_tile) {
  Variant plain = variant(kName, false, choose_tile);
  plain.candidates = [choose_tile](const ForwardProblem& p, const PlanContext& context) {
    return other_tiles(p, context, choose_tile);
  };
  plain.own_config = [choose_tile](const ForwardProblem& p, const PlanContext& context) {
    return own_tile(p, context, choose_tile);
  };
  Variant options = variant("forward_sm90_throughput:options", false, choose_tile);
  options.supports = options_supports();
  options.plan = [choose_tile](const ForwardProblem& p, const PlanContext& context) {
    return plan_options(p, context, choose_tile);
  };
  return {std::move(plain), variant("forward_sm90_throughput:paged", true, choose_tile),
          std::move(options)};
}

}  // namespace flashcore::cuda::forward_sm90::throughput

#include "cuda/forward_fp8_sm90/throughput/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_fp8_sm90/throughput/params.hpp"
#include "cuda/forward_fp8_sm90/throughput/supports.hpp"
#include "cuda/host/fp8_params.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {
namespace {

constexpr std::string_view kFamily = "forward_fp8_sm90";
// Keys and values of a section of heads that runs at once: half of an H100's L2 and some.
constexpr int64_t kSectionBytes = int64_t{32} << 20;

// Tensor maps of Q, K and V^T.
using MapCache = host::PointerCache<Maps, 3>;

// P: Params or OptionParams.
template <class P>
struct Planned {
  P params;
  int config;
  unsigned int blocks;
  launch::Kernel attention, transpose, exact, clear;
};

template <class P>
constexpr bool kHasOptions = std::is_same_v<P, OptionParams>;

template <class P>
const Config& config_of(const Planned<P>& planned) {
  const auto row = static_cast<size_t>(planned.config);
  if constexpr (kHasOptions<P>) return kOptionConfigs[row];
  return kConfigs[row];
}

int64_t tensor_batch(const ForwardProblem& p) { return p.packed ? 1 : p.batch; }

// Without keys no block uses the maps of K and V, but the launch takes all: any map does.
cudaError_t encode(Maps& maps, const ForwardProblem& p, const Params& params,
                   const Config& config) {
  const auto one = [](CUtensorMap& map, const void* base, const host::TensorLayout& layout,
                      int box_rows, int box_columns) {
    return host::encode_tensor_map(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, base, layout, box_rows,
                                   box_columns);
  };
  const int64_t batch = tensor_batch(p);
  const int panel = std::min(config.head_dim, 128);
  const auto layout = [&](const RowStrides& stride, int64_t heads, int64_t rows, int64_t columns) {
    return host::TensorLayout{batch, heads, rows, columns, stride.batch, stride.head, stride.row};
  };
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  cudaError_t error = one(maps.q, params.q.data, layout(p.q, p.heads_q, rows_q, p.head_dim_qk),
                          kWarpgroupRows, panel);
  maps.k = maps.vt = maps.q;
  const int64_t keys = params.vt_keys, head = p.head_dim_v * keys;
  if (rows_kv == 0 || (keys == 0 && !p.v_transposed)) return error;
  if (error == cudaSuccess) {
    error = one(maps.k, params.k.data, layout(p.k, p.heads_kv, rows_kv, p.head_dim_qk),
                config.block_kv, panel);
  }
  if (error == cudaSuccess) {
    const RowStrides made = {p.heads_kv * head, head, keys};
    error = one(maps.vt, p.v_transposed ? params.v.data : params.vt,
                layout(p.v_transposed ? p.v : made, p.heads_kv, p.head_dim_v,
                       p.v_transposed ? p.v_columns : keys),
                config.head_dim_v, config.block_kv);
  }
  return error;
}

// Before O and the largest values are written: V^T, and 0 into the largest values.
template <class P>
Status prepare_run(const ForwardProblem& p, const Planned<P>& planned, const P& params,
                   bool makes_values, const launch::Launcher& launcher) {
  if (makes_values) {
    const auto blocks =
        static_cast<unsigned int>(params.vt_keys / kBlockKv * tensor_batch(p) * params.heads_kv);
    return launcher.launch(planned.transpose, {.blocks = dim3(blocks)}, params);
  }
  if constexpr (kHasOptions<P>) {
    if (params.amax_o.data != nullptr || params.amax_s.data != nullptr) {
      return launcher.launch(planned.clear, {.blocks = dim3(1)}, params);
    }
  }
  return {};
}

// All rows one by one, each by a warp.
template <class P>
Status compute_exactly(const Planned<P>& planned, P params, const launch::Launcher& launcher) {
  params.order.longest_first = false;
  params.order.q_tiles =
      static_cast<uint32_t>((params.seqlen_q + kWarpgroupRows - 1) / kWarpgroupRows);
  uint32_t parts = 1;
  if constexpr (kHasOptions<P>) {
    if (params.packed) {
      params.order.q_tiles = static_cast<uint32_t>(
          attention::packed_slots(params.total_q, params.batch, kWarpgroupRows));
    }
    params.parts = (params.head_dim_v + 127) / 128;
    parts = static_cast<uint32_t>(params.parts);
  }
  return launcher.launch(planned.exact, {.blocks = dim3(params.order.size() * parts)}, params);
}

template <class P>
Status run(const ForwardProblem& p, const Planned<P>& planned, MapCache& cache,
           const Arguments& args, std::span<std::byte> workspace,
           const launch::Launcher& launcher) {
  P params = planned.params;
  host::bind_fp8_params(params, p, args);
  params.vt = reinterpret_cast<uint8_t*>(workspace.data());
  const bool by_rows = !host::has_aligned_tensors(p, args);
  const bool makes_values = !by_rows && planned.blocks > 0 && params.vt_keys > 0;
  FLASHCORE_RETURN_IF_ERROR(prepare_run(p, planned, params, makes_values, launcher));
  if (planned.blocks == 0) return {};
  if (by_rows) return compute_exactly(planned, params, launcher);
  Maps maps{};
  const cudaError_t error = cache.get(
      {args.q, args.k, p.v_transposed ? args.v : params.vt}, maps,
      [&](Maps& made) { return encode(made, p, params, config_of(planned)); }, cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("encoding a tensor map", error));
  // Early only for the transposition, which has waited for the work before it.
  return launcher.launch(planned.attention, {.blocks = dim3(planned.blocks), .early = makes_values},
                         maps, params);
}

Status load(Planned<Params>& planned, const launch::Loader& loader, const ForwardProblem& p) {
  const std::string head = fmt::format("d{}", config_of(planned).head_dim);
  const std::string config = head + (planned.config == k192x64 ? "_192x64" : "");
  if (p.v_transposed) {
    FLASHCORE_RETURN_IF_ERROR(loader.load(planned.attention, kFamily, "v_transposed_" + config));
    return loader.load(planned.exact, kFamily, "v_transposed_exact_" + config);
  }
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.attention, kFamily, config));
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.transpose, kFamily, "transpose_" + head));
  return loader.load(planned.exact, kFamily, "exact_" + head);
}

Status load(Planned<OptionParams>& planned, const launch::Loader& loader, const ForwardProblem& p) {
  const std::string_view type = p.dtype == DType::f8e5m2 ? "e5m2" : "e4m3";
  FLASHCORE_RETURN_IF_ERROR(loader.load(
      planned.attention, kFamily, fmt::format("options_{}_{}", type, config_of(planned).head_dim)));
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.transpose, kFamily, "option_transpose"));
  FLASHCORE_RETURN_IF_ERROR(
      loader.load(planned.exact, kFamily, fmt::format("option_exact_{}", type)));
  return loader.load(planned.clear, kFamily, "clear_largest");
}

template <class P>
Result<PlannedKernel> plan(std::string_view name, int config_row, host::Terms terms,
                           const ForwardProblem& p, const PlanContext& context) {
  Planned<P> planned{};
  planned.config = config_row;
  const Config& config = config_of(planned);
  host::set_fp8_params(planned.params, p, {config.block_q(), config.head_dim_v, kSectionBytes},
                       terms);
  int64_t tiles = planned.params.order.size();
  if constexpr (kHasOptions<P>) tiles *= planned.params.parts;
  planned.blocks =
      static_cast<unsigned int>(std::min<int64_t>(tiles, context.device.multiprocessors));
  const int64_t bytes = product_of({tensor_batch(p), planned.params.heads_kv,
                                    planned.params.head_dim_v, planned.params.vt_keys});
  if (bytes == kTooLarge) {
    return Status(StatusCode::invalid_argument,
                  "k: needs a workspace of 2^63 bytes or more, wanted less");
  }
  // With options there may be largest values, which are 0 then.
  if (planned.blocks == 0 && !kHasOptions<P>) return launch::nothing<PlannedKernel>();
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(load(planned, launch::Loader(name, device), p));
  return launch::planned<PlannedKernel>(
      name, device, static_cast<size_t>(bytes),
      [p, planned, cache = std::make_shared<MapCache>()](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run(p, planned, *cache, args, workspace, launcher);
      });
}

Variant variant(std::string_view name, Supports supports, decltype(Variant::plan) plan) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .targets = build::targets::forward_fp8_sm90,
          .supports = std::move(supports),
          .plan = std::move(plan)};
}

}  // namespace

std::vector<Variant> variants() {
  static constexpr std::string_view kOptions = "forward_fp8_sm90:options";
  const auto plain = [](host::Terms terms, bool is_192x64) {
    return [=](const ForwardProblem& p, const PlanContext& context) {
      return plan<Params>(kFamily, is_192x64 ? k192x64 : choose_config(p.head_dim_qk), terms, p,
                          context);
    };
  };
  const auto with_options = [](const ForwardProblem& p, const PlanContext& context) {
    return plan<OptionParams>(kOptions, choose_option_config(p.head_dim_qk, p.head_dim_v),
                              host::Terms::as_needed, p, context);
  };
  Variant precise = variant("forward_fp8_sm90:precise", supports(), plain(host::Terms::two, false));
  precise.automatic = false;
  precise.not_automatic_reason = "probabilities in two terms take longer";
  return {
      variant("forward_fp8_sm90:192x64", supports_192x64(), plain(host::Terms::as_needed, true)),
      variant(kFamily, supports(), plain(host::Terms::as_needed, false)), precise,
      variant(kOptions, option_supports(), with_options)};
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput

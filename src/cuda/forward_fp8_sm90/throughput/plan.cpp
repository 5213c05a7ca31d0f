#include "cuda/forward_fp8_sm90/throughput/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_fp8_sm90/throughput/option_plan.hpp"
#include "cuda/forward_fp8_sm90/throughput/params_plan.hpp"
#include "cuda/forward_fp8_sm90/throughput/supports.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {
namespace {

constexpr std::string_view kName = "forward_fp8_sm90";

// Tensor maps of Q, K and V^T.
using MapCache = host::PointerCache<Maps, 3>;

struct Planned {
  Params params;
  int config;
  unsigned int blocks;
  launch::Kernel attention, transpose, exact;
};

int64_t workspace_bytes(const Params& params) {
  return product_of({params.batch, params.heads_kv, params.head_dim_v, params.vt_keys});
}

// Without keys no block uses the maps of K and V, but the launch takes all: any map does.
cudaError_t encode(Maps& maps, const ForwardProblem& p, const Params& params,
                   const Config& config) {
  const int head_dim = params.head_dim_v;
  const auto one = [&](CUtensorMap& map, const void* base, const host::TensorLayout& layout,
                       int box_rows, int box_columns) {
    return host::encode_tensor_map(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, base, layout, box_rows,
                                   box_columns);
  };
  cudaError_t error = one(maps.q, params.q.data,
                          {p.batch, p.heads_q, p.seqlen_q, head_dim, p.q.batch, p.q.head, p.q.row},
                          kWarpgroupRows, head_dim);
  maps.k = maps.vt = maps.q;
  if (p.seqlen_kv == 0) return error;
  if (error == cudaSuccess) {
    error = one(maps.k, params.k.data,
                {p.batch, p.heads_kv, p.seqlen_kv, head_dim, p.k.batch, p.k.head, p.k.row},
                config.block_kv, head_dim);
  }
  if (error == cudaSuccess) {
    const int64_t keys = params.vt_keys, head = head_dim * keys;
    const host::TensorLayout made = {p.batch,           p.heads_kv, head_dim, keys,
                                     p.heads_kv * head, head,       keys};
    const host::TensorLayout given = {p.batch,   p.heads_kv, head_dim, p.v_columns,
                                      p.v.batch, p.v.head,   p.v.row};
    error = one(maps.vt, p.v_transposed ? params.v.data : params.vt, p.v_transposed ? given : made,
                head_dim, config.block_kv);
  }
  return error;
}

// All rows one by one, each by a warp.
Status compute_exactly(const Planned& planned, Params params, const launch::Launcher& launcher) {
  params.order.q_tiles =
      static_cast<uint32_t>((params.seqlen_q + kWarpgroupRows - 1) / kWarpgroupRows);
  params.order.longest_first = false;
  return launcher.launch(planned.exact, {.blocks = dim3(params.order.size())}, params);
}

Status run(const ForwardProblem& p, const Planned& planned, MapCache& cache, const Arguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  Params params = planned.params;
  bind_params(params, p, args, workspace);
  if (!are_aligned(p, args)) return compute_exactly(planned, params, launcher);
  Maps maps{};
  const cudaError_t error = cache.get(
      {args.q, args.k, p.v_transposed ? args.v : params.vt}, maps,
      [&](Maps& made) {
        return encode(made, p, params, kConfigs[static_cast<size_t>(planned.config)]);
      },
      cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("encoding a tensor map", error));
  const bool makes_values = params.vt_keys > 0;
  if (makes_values) {
    const auto blocks =
        static_cast<unsigned int>(params.vt_keys / kBlockKv * params.batch * params.heads_kv);
    FLASHCORE_RETURN_IF_ERROR(launcher.launch(planned.transpose, {.blocks = dim3(blocks)}, params));
  }
  // Early only for the transposition, which has waited for the work before it.
  return launcher.launch(planned.attention, {.blocks = dim3(planned.blocks), .early = makes_values},
                         maps, params);
}

Status load(Planned& planned, const launch::Loader& loader, bool v_transposed) {
  const std::string head =
      fmt::format("d{}", kConfigs[static_cast<size_t>(planned.config)].head_dim);
  const std::string config = head + (planned.config == k192x64 ? "_192x64" : "");
  if (v_transposed) {
    FLASHCORE_RETURN_IF_ERROR(loader.load(planned.attention, kName, "v_transposed_" + config));
    return loader.load(planned.exact, kName, "v_transposed_exact_" + config);
  }
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.attention, kName, config));
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.transpose, kName, "transpose_" + head));
  return loader.load(planned.exact, kName, "exact_" + head);
}

// What a variant computes differently.
struct Options {
  Terms terms = Terms::as_needed;
  bool is_192x64 = false;  // the tile at head dimension 128
};

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context,
                           const Options& options) {
  Planned planned{};
  planned.config = options.is_192x64 ? k192x64 : choose_config(p.head_dim_qk);
  const Config& config = kConfigs[static_cast<size_t>(planned.config)];
  set_params(planned.params, p, config.block_q(), options.terms);
  planned.blocks = static_cast<unsigned int>(
      std::min<int64_t>(planned.params.order.size(), context.device.multiprocessors));
  const int64_t bytes = workspace_bytes(planned.params);
  if (bytes == kTooLarge) {
    return Status(StatusCode::invalid_argument,
                  "k: needs a workspace of 2^63 bytes or more, wanted less");
  }
  if (planned.blocks == 0) return launch::nothing<PlannedKernel>();
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(load(planned, launch::Loader(kName, device), p.v_transposed));
  return launch::planned<PlannedKernel>(
      kName, device, static_cast<size_t>(bytes),
      [p, planned, cache = std::make_shared<MapCache>()](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run(p, planned, *cache, args, workspace, launcher);
      });
}

Variant variant(std::string_view name, std::string_view not_automatic_reason,
                const Options& options) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .automatic = not_automatic_reason.empty(),
          .not_automatic_reason = not_automatic_reason,
          .targets = build::targets::forward_fp8_sm90,
          .supports = options.is_192x64 ? supports_192x64() : supports(),
          .plan = [options](const ForwardProblem& p, const PlanContext& context) {
            return plan(p, context, options);
          }};
}

}  // namespace

std::vector<Variant> variants() {
  return {variant("forward_fp8_sm90:192x64", {}, {.is_192x64 = true}), variant(kName, {}, {}),
          variant("forward_fp8_sm90:precise", "probabilities in two terms take longer",
                  {.terms = Terms::two}),
          options_variant()};
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput

#include "cuda/forward_fp8_sm90/throughput/option_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_fp8_sm90/throughput/params.hpp"
#include "cuda/forward_fp8_sm90/throughput/params_plan.hpp"
#include "cuda/forward_fp8_sm90/throughput/supports.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {
namespace {

constexpr std::string_view kName = "forward_fp8_sm90:options";
constexpr std::string_view kFamily = "forward_fp8_sm90";

// Tensor maps of Q, K and the workspace.
using MapCache = host::PointerCache<Maps, 3>;

struct Planned {
  OptionParams params;
  int config;
  unsigned int blocks;
  launch::Kernel attention, transpose, exact, clear;
};

LargestValues largest_values(const LargestOutput& output) {
  return {nullptr, output.batch, output.head, static_cast<int>(output.batches),
          static_cast<int>(output.heads)};
}

int64_t tensor_batch(const ForwardProblem& p) { return p.packed ? 1 : p.batch; }

// Everything but the pointers.
OptionParams make_params(const ForwardProblem& p, const Config& config) {
  OptionParams params{};
  set_params(params, p, config.block_q(), Terms::as_needed);
  params.o_scale = {nullptr, p.o_scale.batch, p.o_scale.head};
  params.amax_o = largest_values(p.amax_o);
  params.amax_s = largest_values(p.amax_s);
  params.softcap = p.softcap;
  params.parts = static_cast<int>((p.head_dim_v + config.head_dim_v - 1) / config.head_dim_v);
  params.packed = p.packed;
  if (p.packed) {  // slots of tiles and of blocks of keys, whatever sequences they belong to
    params.varies = true;
    params.order = {.batch_heads = static_cast<uint32_t>(p.total_q > 0 ? p.heads_q : 0),
                    .q_tiles = static_cast<uint32_t>(
                        attention::packed_slots(p.total_q, p.batch, config.block_q())),
                    .section_heads = 1,
                    .longest_first = false};
    const int64_t slots = attention::packed_slots(p.total_kv, p.batch, kBlockKv);
    params.vt_keys = p.total_kv > 0 ? static_cast<int>(slots * kBlockKv) : 0;
  }
  return params;
}

int64_t workspace_bytes(const ForwardProblem& p, const OptionParams& params) {
  return product_of({tensor_batch(p), params.heads_kv, params.head_dim_v, params.vt_keys});
}

// Without keys no block uses the maps of K and V, but the launch takes all: any map does.
cudaError_t encode(Maps& maps, const ForwardProblem& p, const OptionParams& params,
                   const Config& config) {
  const auto one = [](CUtensorMap& map, const void* base, const host::TensorLayout& layout,
                      int box_rows, int box_columns) {
    return host::encode_tensor_map(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, base, layout, box_rows,
                                   box_columns);
  };
  const int64_t batch = tensor_batch(p);
  const int panel = std::min(config.head_dim, 128);
  const auto layout = [&](const RowStrides& stride, int64_t heads, int64_t rows) {
    return host::TensorLayout{batch,        heads,       rows,      p.head_dim_qk,
                              stride.batch, stride.head, stride.row};
  };
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  cudaError_t error =
      one(maps.q, params.q.data, layout(p.q, p.heads_q, rows_q), kWarpgroupRows, panel);
  maps.k = maps.vt = maps.q;
  if (rows_kv == 0 || params.vt_keys == 0) return error;
  if (error == cudaSuccess) {
    error = one(maps.k, params.k.data, layout(p.k, p.heads_kv, rows_kv), config.block_kv, panel);
  }
  if (error == cudaSuccess) {
    const int64_t keys = params.vt_keys, head = p.head_dim_v * keys;
    error = one(maps.vt, params.vt,
                {batch, p.heads_kv, p.head_dim_v, keys, p.heads_kv * head, head, keys},
                config.head_dim_v, config.block_kv);
  }
  return error;
}

void bind(OptionParams& params, const ForwardProblem& p, const Arguments& args,
          std::span<std::byte> workspace) {
  bind_params(params, p, args, workspace);
  params.o_scale.data = p.o_scale.present ? args.o_scale : nullptr;
  params.amax_o.data = p.amax_o.present ? reinterpret_cast<uint32_t*>(args.amax_o) : nullptr;
  params.amax_s.data = p.amax_s.present ? reinterpret_cast<uint32_t*>(args.amax_s) : nullptr;
}

// Before O and the largest values are written: V^T, and 0 into the largest values.
Status prepare_run(const Planned& planned, const OptionParams& params, bool makes_values,
                   const launch::Launcher& launcher) {
  if (makes_values) {
    const int entries = params.packed ? 1 : params.batch;
    const auto blocks =
        static_cast<unsigned int>(params.vt_keys / kBlockKv * entries * params.heads_kv);
    return launcher.launch(planned.transpose, {.blocks = dim3(blocks)}, params);
  }
  if (params.amax_o.data == nullptr && params.amax_s.data == nullptr) return {};
  return launcher.launch(planned.clear, {.blocks = dim3(1)}, params);
}

// All rows one by one, each by a warp.
Status compute_exactly(const Planned& planned, OptionParams params,
                       const launch::Launcher& launcher) {
  params.order.q_tiles = static_cast<uint32_t>(
      params.packed ? attention::packed_slots(params.total_q, params.batch, kWarpgroupRows)
                    : (params.seqlen_q + kWarpgroupRows - 1) / kWarpgroupRows);
  params.order.longest_first = false;
  params.parts = (params.head_dim_v + 127) / 128;
  const uint32_t blocks = params.order.size() * static_cast<uint32_t>(params.parts);
  return launcher.launch(planned.exact, {.blocks = dim3(blocks)}, params);
}

Status run(const ForwardProblem& p, const Planned& planned, MapCache& cache, const Arguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  OptionParams params = planned.params;
  bind(params, p, args, workspace);
  const bool by_rows = !are_aligned(p, args);
  const bool makes_values = !by_rows && planned.blocks > 0 && params.vt_keys > 0;
  FLASHCORE_RETURN_IF_ERROR(prepare_run(planned, params, makes_values, launcher));
  if (planned.blocks == 0) return {};
  if (by_rows) return compute_exactly(planned, params, launcher);
  const Config& config = kOptionConfigs[static_cast<size_t>(planned.config)];
  Maps maps{};
  const cudaError_t error = cache.get(
      {args.q, args.k, params.vt}, maps,
      [&](Maps& made) { return encode(made, p, params, config); }, cudaSuccess);
  FLASHCORE_RETURN_IF_ERROR(launcher.failed("encoding a tensor map", error));
  // Early only for the transposition, which has waited for the work before it.
  return launcher.launch(planned.attention,
                         {.blocks = dim3(planned.blocks), .early = params.vt_keys > 0}, maps,
                         params);
}

Status load(Planned& planned, const launch::Loader& loader, bool e5m2) {
  const std::string_view type = e5m2 ? "e5m2" : "e4m3";
  const int head_dim = kOptionConfigs[static_cast<size_t>(planned.config)].head_dim;
  FLASHCORE_RETURN_IF_ERROR(
      loader.load(planned.attention, kFamily, fmt::format("options_{}_{}", type, head_dim)));
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.transpose, kFamily, "option_transpose"));
  FLASHCORE_RETURN_IF_ERROR(
      loader.load(planned.exact, kFamily, fmt::format("option_exact_{}", type)));
  return loader.load(planned.clear, kFamily, "clear_largest");
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  Planned planned{};
  planned.config = choose_option_config(p.head_dim_qk, p.head_dim_v);
  planned.params = make_params(p, kOptionConfigs[static_cast<size_t>(planned.config)]);
  planned.blocks = static_cast<unsigned int>(std::min<int64_t>(
      int64_t{planned.params.order.size()} * planned.params.parts, context.device.multiprocessors));
  const int64_t bytes = workspace_bytes(p, planned.params);
  if (bytes == kTooLarge) {
    return Status(StatusCode::invalid_argument,
                  "k: needs a workspace of 2^63 bytes or more, wanted less");
  }
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(load(planned, launch::Loader(kName, device), p.dtype == DType::f8e5m2));
  return launch::planned<PlannedKernel>(
      kName, device, static_cast<size_t>(bytes),
      [p, planned, cache = std::make_shared<MapCache>()](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run(p, planned, *cache, args, workspace, launcher);
      });
}

}  // namespace

Variant options_variant() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .targets = build::targets::forward_fp8_sm90,
          .supports = option_supports(),
          .plan = plan};
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput

#include "cuda/decode_sm80/split_kv/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/params.hpp"
#include "cuda/decode_sm80/split_kv/supports.hpp"
#include "cuda/host/decode_params.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {
namespace {

constexpr std::string_view kName = "decode_sm80";
constexpr int64_t kAlignment = 256;  // of each array in the workspace

struct Planned {
  PairParams params;
  launch::Kernel kernel, combine;
  int config;  // the row of kConfigs
  unsigned int blocks;
  // Bytes from the beginning of the workspace.
  int64_t rows_at, o_at, bytes;
};

PairParams make_params(const ForwardProblem& p, bool batch_invariant) {
  PairParams params{};
  host::set_decode_params(params, p, batch_invariant);
  params.unit_rows = static_cast<int>(std::min<int64_t>(kTileRows, p.seqlen_q * params.group));
  params.tree = host::tree_bits_of(p);
  params.bias = host::pair_matrix(p.bias);
  params.mask = host::pair_matrix(p.mask);
  params.bias_type = host::element_type(p.bias.dtype);
  return params;
}

// Lays out the workspace by the largest sizes. Returns false if it has 2^63 bytes or more.
bool place_workspace(Planned& planned, const ForwardProblem& p, int64_t units) {
  const auto end_of = [](int64_t begin, int64_t bytes) {
    const int64_t end = sum_of({begin, bytes, kAlignment - 1});
    return end == kTooLarge ? end : end / kAlignment * kAlignment;
  };
  const int64_t rows = product_of({units, planned.params.unit_rows});
  planned.rows_at = end_of(0, product_of({p.batch, int64_t{sizeof(EntryUnits)}}));
  planned.o_at = end_of(planned.rows_at, product_of({rows, int64_t{sizeof(float2)}}));
  planned.bytes = end_of(planned.o_at, product_of({rows, p.head_dim_v, int64_t{sizeof(float)}}));
  return planned.bytes != kTooLarge;
}

// Each kernel takes its part of the parameters.
Status start(const launch::Launcher& launcher, const Planned& planned, const PairParams& params) {
  const Config& config = kConfigs[static_cast<size_t>(planned.config)];
  const launch::Grid grid{.blocks = dim3(planned.blocks)};
  if (config.reads_pairs) return launcher.launch(planned.kernel, grid, params);
  if (config.reads_trees) {
    return launcher.launch(planned.kernel, grid, static_cast<const TreeParams&>(params));
  }
  return launcher.launch(planned.kernel, grid, static_cast<const Params&>(params));
}

// A block per row, and of rows that are wider than it per slice.
Status combine(const launch::Launcher& launcher, const Planned& planned, const ForwardProblem& p,
               const Params& params) {
  const int64_t rows = p.heads_q * (p.packed ? p.total_q : p.batch * p.seqlen_q);
  const int64_t slices =
      std::max<int64_t>(1, (p.head_dim_v + kCombineThreads - 1) / kCombineThreads);
  const dim3 blocks(static_cast<unsigned int>(rows), static_cast<unsigned int>(slices));
  return launcher.launch(planned.combine, {.blocks = blocks}, params);
}

Status run(const ForwardProblem& p, const Planned& planned, const Arguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  PairParams params = planned.params;
  host::bind_decode_params(params, p, args);
  params.tree.data = p.tree_mask.present ? args.tree_mask : nullptr;
  params.bias.data = p.bias.present ? args.bias : nullptr;
  params.mask.data = p.mask.present ? args.mask : nullptr;
  params.entry_units = reinterpret_cast<EntryUnits*>(workspace.data());
  params.partial_rows = reinterpret_cast<float2*>(workspace.data() + planned.rows_at);
  params.partial_o = reinterpret_cast<float*>(workspace.data() + planned.o_at);
  if (p.heads_kv > 0 && p.seqlen_kv > 0) {
    FLASHCORE_RETURN_IF_ERROR(start(launcher, planned, params));
  }
  return combine(launcher, planned, p, params);
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  if (p.heads_q == 0 || (p.packed ? p.total_q == 0 : p.batch == 0 || p.seqlen_q == 0)) {
    return launch::nothing<PlannedKernel>();
  }
  Planned planned{};
  planned.params = make_params(p, context.batch_invariant);
  planned.config = config_index(p);
  const int64_t units = unit_count(p, context);
  planned.blocks =
      static_cast<unsigned int>(std::clamp<int64_t>(units, 1, block_count(p, context.device)));
  planned.params.most_units = static_cast<int>(units);
  if (!place_workspace(planned, p, units)) {
    return unsupported("kernel {}: workspace: needs 2^63 bytes or more, wanted less", kName);
  }
  const int device = context.device.device.index;
  {
    const launch::Loader loader(kName, device);
    FLASHCORE_RETURN_IF_ERROR(loader.load(
        planned.kernel, kName,
        fmt::format("decode80_{}_config{}", launch::element_name(p.dtype), planned.config)));
    FLASHCORE_RETURN_IF_ERROR(loader.load(
        planned.combine, kName, p.head_dim_v > kCombineThreads ? "combine_wide" : "combine"));
  }
  return launch::planned<PlannedKernel>(
      kName, device, static_cast<size_t>(planned.bytes),
      [p, planned](const Arguments& args, std::span<std::byte> workspace,
                   const launch::Launcher& launcher) {
        return run(p, planned, args, workspace, launcher);
      });
}

}  // namespace

Variant variant() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .automatic = true,
          .targets = build::targets::decode_sm80,
          .supports = supports(),
          .plan = plan};
}

}  // namespace flashcore::cuda::decode_sm80::split_kv

#include "cuda/forward_fp8_sm89/throughput/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <string_view>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/forward_fp8_sm89/throughput/params.hpp"
#include "cuda/forward_fp8_sm89/throughput/supports.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {
namespace {

// Keys and values of a section of heads that runs at once: half of an L4's L2.
constexpr int64_t kSectionBytes = int64_t{24} << 20;
constexpr std::string_view kName = "forward_fp8_sm89";
// The choice is one line here: `automatic` where this is empty.
constexpr std::string_view kUntimed = "it was never timed on an Ada GPU";

enum class Terms { as_needed, two };

struct Planned {
  Params params;
  launch::Kernel kernel;
  unsigned int blocks;
};

OutputType output_type(DType dtype) {
  if (dtype == DType::f32) return OutputType::f32;
  return dtype == DType::f16 ? OutputType::f16 : OutputType::bf16;
}

// Everything but the pointers.
Params make_params(const ForwardProblem& p, Terms terms) {
  constexpr double kLargestCap = std::numeric_limits<float>::max() / std::numbers::log2e;
  Params params{};
  host::set_forward_params(params, p);
  params.order = host::tile_order(p, kBlockQ, host::section_rows(p, kSectionBytes));
  params.heads = static_cast<uint32_t>(p.heads_q);
  params.heads_per_kv_head = static_cast<uint32_t>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  params.precise = terms == Terms::two;
  params.output = output_type(p.o_dtype);
  params.left = p.band.left;
  params.right = p.band.right;
  params.softmax_scale = p.softmax_scale;
  const double cap = std::min<double>(p.softcap, kLargestCap);
  params.cap = static_cast<float>(cap);
  params.cap_log2 = attention::softcap::finite(cap * std::numbers::log2e);
  params.q_scale = {nullptr, p.q_scale.batch, p.q_scale.head};
  params.k_scale = {nullptr, p.k_scale.batch, p.k_scale.head};
  params.v_scale = {nullptr, p.v_scale.batch, p.v_scale.head};
  params.sinks_step = p.sinks.head;
  return params;
}

Planned make_launch(const ForwardProblem& p, Terms terms) {
  Planned planned{};
  planned.params = make_params(p, terms);
  const int64_t tiles = p.batch * int64_t{planned.params.order.q_tiles};
  const int64_t slots = attention::packed_slots(p.total_q, p.batch, kBlockQ);
  const bool packed = p.packed && slots < tiles;
  if (packed) planned.params.packed_slots = static_cast<int>(slots);
  planned.blocks = static_cast<unsigned int>(p.heads_q * (packed ? slots : tiles));
  return planned;
}

// The pointers of a run.
void bind(Params& params, const ForwardProblem& p, const Arguments& args) {
  host::bind_forward_params(params, p, args);
  const bool has_keys = p.seqlen_kv > 0;  // without them these have no element either
  params.q_scale.data = p.q_scale.present ? args.q_scale : nullptr;
  params.k_scale.data = p.k_scale.present && has_keys ? args.k_scale : nullptr;
  params.v_scale.data = p.v_scale.present && has_keys ? args.v_scale : nullptr;
  params.sinks = p.sinks.present ? args.sinks : nullptr;
  params.by_rows = !(host::is_aligned(args.q) && host::is_aligned(args.o) &&
                     (!has_keys || (host::is_aligned(args.k) && host::is_aligned(args.v))));
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context, Terms terms) {
  Planned planned = make_launch(p, terms);
  if (planned.blocks == 0) return launch::nothing<PlannedKernel>();
  const int config = choose_config(p.head_dim_qk, p.head_dim_v);
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(
      launch::Loader(kName, device)
          .load(planned.kernel, kName,
                fmt::format("d{}", kConfigs[static_cast<size_t>(config)].head_dim)));
  return launch::planned<PlannedKernel>(
      kName, device, 0,
      [p, planned](const Arguments& args, std::span<std::byte> /*workspace*/,
                   const launch::Launcher& launcher) {
        Params params = planned.params;
        bind(params, p, args);
        return launcher.launch(planned.kernel, {.blocks = dim3(planned.blocks)}, params);
      });
}

Variant variant(std::string_view name, std::string_view not_automatic_reason, Terms terms) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .automatic = not_automatic_reason.empty(),
          .not_automatic_reason = not_automatic_reason,
          .tunable = terms == Terms::as_needed,
          .targets = build::targets::forward_fp8_sm89,
          .supports = supports(),
          .plan = [terms](const ForwardProblem& p, const PlanContext& context) {
            return plan(p, context, terms);
          }};
}

}  // namespace

std::vector<Variant> variants() {
  return {
      variant(kName, kUntimed, Terms::as_needed),
      variant("forward_fp8_sm89:precise", "probabilities in two terms take longer", Terms::two)};
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput

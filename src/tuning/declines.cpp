#include "tuning/declines.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "cuda/forward_sm80/throughput/supports.hpp"
#include "problem/entries.hpp"

namespace flashcore::tuning {
namespace {

using cuda::forward_sm80::throughput::splits_keys;

// What runs where no kernel for small problems does.
NextKernel next_kernel(const ForwardProblem& p, const PlanContext& context,
                       const Kernel& forward_sm90) {
  const bool takes = forward_sm90.refuses(p, context).empty() &&
                     (!forward_sm90.declines || forward_sm90.declines(p, context).empty());
  return takes ? NextKernel::forward_sm90_throughput : NextKernel::forward_sm80_throughput;
}

// Why a time is not known, or empty.
std::string unpredicted(const ForwardProblem& p, const PlanContext& context) {
  if (context.batch_invariant)
    return "batch_invariant: is set, and the choice depends on the batch";
  if (entries_vary(p))
    return "entries have lengths or diagonals of their own, so its time cannot be predicted";
  return {};
}

constexpr std::string_view kUnmeasured = "the problem is larger than those it was measured on";

}  // namespace

std::string sm90_throughput_declines(const ForwardProblem& p, const PlanContext& context) {
  if (!splits_keys(p, context)) return {};
  return fmt::format(
      "q: has {} rows and k {}, which keep few multiprocessors busy; forward_sm80_throughput "
      "splits "
      "the keys",
      p.seqlen_q, p.seqlen_kv);
}

std::string sm90_latency_declines(const ForwardProblem& p, const PlanContext& context,
                                  const Kernel& forward_sm90,
                                  bool (SmallChoice::*is_chosen)() const) {
  if (std::string why = unpredicted(p, context); !why.empty()) return why;
  const SmallChoice choice =
      choose_small(p, context.device.multiprocessors, next_kernel(p, context, forward_sm90));
  if ((choice.*is_chosen)()) return {};
  if (!choice.is_measured) return std::string(kUnmeasured);
  const std::string medium =
      std::isfinite(choice.medium_us)
          ? fmt::format(", forward_sm90_latency_wide {:.1f}", choice.medium_us)
          : "";
  return fmt::format("forward_sm90_latency would take about {:.1f} us{}, the next kernel {:.1f}",
                     choice.small_us, medium, choice.next_us);
}

std::string sm80_latency_declines(const ForwardProblem& p, const PlanContext& context) {
  if (std::string why = unpredicted(p, context); !why.empty()) return why;
  if (splits_keys(p, context))
    return "few queries against many keys: forward_sm80_throughput splits the keys among several "
           "blocks";
  const SmallChoice choice =
      choose_small_sm80(p, context.device.multiprocessors, context.device.shared_memory_a_block);
  if (choice.is_small()) return {};
  if (!choice.is_measured) return std::string(kUnmeasured);
  return fmt::format("would take about {:.1f} us, forward_sm80_throughput {:.1f}", choice.small_us,
                     choice.next_us);
}

}  // namespace flashcore::tuning

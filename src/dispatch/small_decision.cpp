#include "dispatch/small_decision.hpp"

#include <fmt/format.h>

#include <cmath>

#include "dispatch/entries.hpp"
#include "dispatch/forward_sm90.hpp"

namespace flashcore {
namespace {

// The kernel that runs where none of these does.
NextKernel next_kernel(const ForwardProblem& p, const PlanContext& context) {
  static const Kernel sm90 = forward_sm90_kernel();
  const bool takes = sm90.automatic && sm90.refuses(p, context).empty() &&
                     (!sm90.declines || sm90.declines(p, context).empty());
  return takes ? NextKernel::forward_sm90 : NextKernel::forward_sm80;
}

}  // namespace

std::string small_declines(const ForwardProblem& p, const PlanContext& context,
                           bool (SmallChoice::*is_chosen)() const) {
  if (context.batch_invariant)
    return "batch_invariant: is set, and the choice depends on the batch";
  if (entries_vary(p))
    return "entries have lengths or diagonals of their own: its time is not known";
  const SmallChoice choice =
      choose_small(p, context.device.multiprocessors, next_kernel(p, context));
  if ((choice.*is_chosen)()) return {};
  if (!choice.is_measured) return "the problem is larger than those it was measured on";
  const std::string medium = std::isfinite(choice.medium_us)
                                 ? fmt::format(", forward_medium_sm90 {:.1f}", choice.medium_us)
                                 : "";
  return fmt::format("forward_small_sm90 would take about {:.1f} us{}, the next kernel {:.1f}",
                     choice.small_us, medium, choice.next_us);
}

}  // namespace flashcore

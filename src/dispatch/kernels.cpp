#include "dispatch/kernels.hpp"

#include "cpu/reference.hpp"

namespace flashcore {
namespace {

Kernel reference() {
  return {.name = "reference",
          .device = DeviceKind::cpu,
          .automatic = true,
          .refuses = [](const ForwardProblem&, const PlanContext&) { return std::string(); },
          .plan = [](const ForwardProblem& p, const PlanContext& context) -> Result<PlannedKernel> {
            return PlannedKernel{
                .workspace_bytes = 0,
                .run = [p, threads = context.threads](const Arguments& args, std::span<std::byte>,
                                                      Stream) -> Status {
                  cpu::reference_forward(p, args, threads);
                  return {};
                }};
          }};
}

}  // namespace

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> table = {
      reference(),
  };
  return table;
}

}  // namespace flashcore

// The checks of a plan's run, for calls that do other work first.
#pragma once

#include <cstddef>

#include "flashcore/flashcore.hpp"

namespace flashcore {

struct PlanChecks {
  // The checks of Plan::run with the same arguments. Does not write a page status.
  static Status of_run(const Plan& plan, const Arguments& arguments, const void* workspace,
                       size_t workspace_bytes);
  static Device device(const Plan& plan);
};

}  // namespace flashcore

// What a run of a plan would refuse, for calls that do something else before it.
#pragma once

#include <cstddef>

#include "flashcore/flashcore.hpp"

namespace flashcore {

struct PlanChecks {
  // Of Plan::run with the same arguments. A page status is not written.
  static Status of_run(const Plan& plan, const Arguments& arguments, const void* workspace,
                       size_t workspace_bytes);
  static Device device(const Plan& plan);
};

}  // namespace flashcore

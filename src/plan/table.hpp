// The table of kernels: every implementation, best first; each can refuse with one sentence.
//
// make_plan, explain and a forced choice all use this one table; docs/adding-a-kernel.md says how
// to add a row.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore {

// Best first.
const std::vector<Kernel>& kernels();

}  // namespace flashcore

// The table of kernels: every implementation, best first, each refusing with one sentence.
//
// make_plan, explain and the forced choice all ask this one table; docs/adding-a-kernel.md says how
// to add a row.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore {

// Best first.
const std::vector<Kernel>& kernels();

}  // namespace flashcore

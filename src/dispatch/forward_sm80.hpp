// The rows of forward_sm80 in the table of kernels.
#pragma once

#include <vector>

#include "dispatch/kernels.hpp"

namespace flashcore {

std::vector<Kernel> forward_sm80_kernels();

}  // namespace flashcore

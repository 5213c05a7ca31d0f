// The CUDA part of the table of kernels, best first. Two definitions: cuda_kernels.cpp, and
// device_no_cuda.cpp for builds without CUDA, where there are none.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore {

std::vector<Kernel> cuda_kernels();

}  // namespace flashcore

// The CUDA part of the table of kernels, best first. Defined in cuda_kernels.cpp, and for builds
// without CUDA in device_no_cuda.cpp, where it is empty.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore {

std::vector<Variant> cuda_variants();

}  // namespace flashcore

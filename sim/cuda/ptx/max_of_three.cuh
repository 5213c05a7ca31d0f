// Stands for src/cuda/ptx/max_of_three.cuh.
#pragma once

#include <algorithm>

namespace flashcore::cuda::ptx {

inline int max_of_three(int a, int b, int c) { return std::max({a, b, c}); }

}  // namespace flashcore::cuda::ptx

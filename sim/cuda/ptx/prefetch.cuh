// Stands for src/cuda/ptx/prefetch.cuh.
#pragma once

namespace flashcore::cuda::ptx {

inline void prefetch_l2(const void*) {}

}  // namespace flashcore::cuda::ptx

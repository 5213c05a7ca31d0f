// Stands for src/cuda/ptx/reduce_global.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/global_memory.hpp"
#include "engine/global_order.hpp"

namespace flashcore::cuda::ptx {

inline void reduce_add_f32x4(float* address, const float (&x)[4],
                             sim::Site site = sim::Site::here()) {
  for (int i = 0; i < 4; ++i) {
    const sim::AtomicAccess access(address + i, sizeof(float), site);
    access.store(address + i, access.load(address + i) + x[i]);
  }
}

inline void count_release(unsigned long long* address, sim::Site site = sim::Site::here()) {
  sim::fence_global();
  const sim::AtomicAccess access(address, sizeof *address, site);
  access.store(address, access.load(address) + 1);
}

}  // namespace flashcore::cuda::ptx

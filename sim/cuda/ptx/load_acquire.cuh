// Stands for src/cuda/ptx/load_acquire.cuh.
#pragma once

#include <cstring>

#include "engine/global_memory.hpp"

namespace flashcore::cuda::ptx {

inline unsigned long long load_acquire(const unsigned long long* address,
                                       sim::Site site = sim::Site::here()) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  return sim::load_acquire(reinterpret_cast<const uint64_t*>(address), site);
}

}  // namespace flashcore::cuda::ptx

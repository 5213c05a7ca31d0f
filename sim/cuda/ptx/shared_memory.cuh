// Stands for src/cuda/ptx/shared_memory.cuh.
#pragma once

#include "engine/global_memory.hpp"

namespace flashcore::cuda::ptx {

inline unsigned char* dynamic_shared() { return sim::dynamic_shared(); }

template <class T, int kAlignment = alignof(T)>
T& static_shared(sim::Site site = sim::Site::here()) {
  static const char name = 0;
  return *reinterpret_cast<T*>(sim::static_shared(&name, sizeof(T), kAlignment, site));
}

}  // namespace flashcore::cuda::ptx

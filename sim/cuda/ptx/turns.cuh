// Stands for src/cuda/ptx/turns.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/global_memory.hpp"
#include "engine/global_order.hpp"

namespace flashcore::cuda::ptx {

inline void add_f32x4(float* sums, const float (&x)[4], sim::Site site = sim::Site::here()) {
  for (int i = 0; i < 4; ++i) atomicAdd(sums + i, x[i], site);
}
inline void add_or_store_f32x4(float* sums, const float (&x)[4], bool stores,
                               sim::Site site = sim::Site::here()) {
  if (!stores) {
    add_f32x4(sums, x, site);
    return;
  }
  for (int i = 0; i < 4; ++i) sums[i] = x[i];
}
inline void load_and_add_f32x4(float (&x)[4], const float* sums) {
  for (int i = 0; i < 4; ++i) x[i] += sums[i];
}
inline void wait_for_turn(const uint32_t* counter, uint32_t turn,
                          sim::Site site = sim::Site::here()) {
  while (sim::load_acquire(counter, site) != turn) {
  }
}
template <class T>
void count_turn(T* counter, sim::Site site = sim::Site::here()) {
  sim::fence_global();
  atomicAdd(counter, T{1}, site);
}
inline void fence_gpu() { sim::fence_global(); }

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/shared_access.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline float2 load_shared_x2(uint32_t address, sim::Site site = sim::Site::here()) {
  float2 x;
  sim::load_shared(address, &x, sizeof x, site);
  return x;
}
inline void store_shared_x2(uint32_t address, const uint32_t (&x)[2],
                            sim::Site site = sim::Site::here()) {
  sim::store_shared(address, x, sizeof x, site);
}
inline float4 load_shared_f32x4(uint32_t address, sim::Site site = sim::Site::here()) {
  float4 x;
  sim::load_shared(address, &x, sizeof x, site);
  return x;
}
inline void store_shared_x2(uint32_t address, float low, float high,
                            sim::Site site = sim::Site::here()) {
  const float x[2] = {low, high};
  sim::store_shared(address, x, sizeof x, site);
}

inline uint4 load_shared_x4(uint32_t address, sim::Site site = sim::Site::here()) {
  uint4 v;
  sim::load_shared(address, &v, sizeof v, site);
  return v;
}

inline uint32_t load_shared_word(uint32_t address, sim::Site site = sim::Site::here()) {
  uint32_t x;
  sim::load_shared(address, &x, sizeof x, site);
  return x;
}

inline void store_shared_x4(uint32_t address, const float (&x)[4],
                            sim::Site site = sim::Site::here()) {
  sim::store_shared(address, x, sizeof x, site);
}

inline void store_shared_x4(uint32_t address, const uint32_t (&x)[4],
                            sim::Site site = sim::Site::here()) {
  sim::store_shared(address, x, sizeof x, site);
}

}  // namespace flashcore::cuda::ptx

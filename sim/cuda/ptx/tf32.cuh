// Stands for src/cuda/ptx/tf32.cuh.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/number_formats.hpp"
#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline float round_to_tf32(float x) { return sim::tf32_of(x); }

inline void mma_m16n8k8_tf32(float (&d)[4], const float (&a)[4], float b0, float b1,
                             sim::Site site = sim::Site::here()) {
  const uint32_t left[4] = {std::bit_cast<uint32_t>(a[0]), std::bit_cast<uint32_t>(a[1]),
                            std::bit_cast<uint32_t>(a[2]), std::bit_cast<uint32_t>(a[3])};
  sim::multiply_m16n8(d, left, {std::bit_cast<uint32_t>(b0), std::bit_cast<uint32_t>(b1)},
                      sim::ElementType::tf32, site);
}

inline float load_shared_f32(uint32_t address, sim::Site site = sim::Site::here()) {
  float x;
  sim::load_shared(address, &x, sizeof x, site);
  return x;
}

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/load_shared_word.cuh.
#pragma once

#include <cstdint>

#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline uint32_t load_shared_word(uint32_t address, sim::Site site = sim::Site::here()) {
  uint32_t x;
  sim::load_shared(address, &x, sizeof x, site);
  return x;
}

}  // namespace flashcore::cuda::ptx

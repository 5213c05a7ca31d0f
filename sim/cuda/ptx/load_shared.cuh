// Stands for src/cuda/ptx/load_shared.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline uint4 load_shared_x4(uint32_t address, sim::Site site = sim::Site::here()) {
  uint4 v;
  sim::load_shared(address, &v, sizeof v, site);
  return v;
}

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/tma_policy.cuh.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "engine/tensor_copy.hpp"

namespace flashcore::cuda::ptx {

inline void tma_load_5d_policy(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                               uint64_t /*policy*/, int c0, int c1, int c2, int c3, int c4,
                               sim::Site site = sim::Site::here()) {
  sim::load_box(shared, map, barrier, 0, {c0, c1, c2, c3, c4}, site);
}

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/tma_multicast.cuh.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "engine/mbarrier.hpp"
#include "engine/tensor_copy.hpp"

namespace flashcore::cuda::ptx {

inline void tma_load_4d_multicast(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                  uint16_t blocks, int c0, int c1, int c2, int c3,
                                  sim::Site site = sim::Site::here()) {
  sim::load_box(shared, map, barrier, blocks, {c0, c1, c2, c3}, site);
}
inline void mbarrier_arrive_cluster(uint32_t barrier, sim::Site site = sim::Site::here()) {
  sim::arrive_at_mbarrier(barrier, 0, site);
}

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/tma.cuh.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "engine/mbarrier.hpp"
#include "engine/tensor_copy.hpp"

namespace flashcore::cuda::ptx {

inline void prefetch_tensor_map(const CUtensorMap* map, sim::Site site = sim::Site::here()) {
  sim::check_map(map, site);
}

inline void tma_load_4d(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int c0, int c1,
                        int c2, int c3, sim::Site site = sim::Site::here()) {
  sim::load_box(shared, map, barrier, 0, {c0, c1, c2, c3}, site);
}
inline void tma_store_4d(const CUtensorMap* map, uint32_t shared, int c0, int c1, int c2, int c3,
                         sim::Site site = sim::Site::here()) {
  sim::store_box(map, shared, {c0, c1, c2, c3}, site);
}
inline void tma_store_commit() { sim::commit_stores(); }
template <int kPending>
void tma_store_wait_read() {
  sim::wait_stores_read(kPending);
}

inline void tma_load_5d(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int c0, int c1,
                        int c2, int c3, int c4, sim::Site site = sim::Site::here()) {
  sim::load_box(shared, map, barrier, 0, {c0, c1, c2, c3, c4}, site);
}

inline void tma_load_4d_multicast(uint32_t shared, const CUtensorMap* map, uint32_t barrier,
                                  uint16_t blocks, int c0, int c1, int c2, int c3,
                                  sim::Site site = sim::Site::here()) {
  sim::load_box(shared, map, barrier, blocks, {c0, c1, c2, c3}, site);
}
inline void mbarrier_arrive_cluster(uint32_t barrier, sim::Site site = sim::Site::here()) {
  sim::arrive_at_mbarrier(barrier, 0, site);
}

}  // namespace flashcore::cuda::ptx

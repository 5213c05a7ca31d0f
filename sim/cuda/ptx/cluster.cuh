// Stands for src/cuda/ptx/cluster.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/access.hpp"
#include "engine/barrier.hpp"
#include "engine/mbarrier.hpp"
#include "engine/tensor_copy.hpp"

namespace flashcore::cuda::ptx {

inline void publish_barriers() { sim::publish_mbarriers(); }

inline void cluster_arrive_relaxed(sim::Site site = sim::Site::here()) {
  sim::cluster_arrive(false, site);
}
inline void cluster_wait(sim::Site site = sim::Site::here()) { sim::cluster_wait(site); }

inline uint32_t cluster_address(uint32_t address, uint32_t rank) {
  return (address & ((1u << sim::kBlockShift) - 1)) | (rank + 1) << sim::kBlockShift;
}

inline void store_async(uint32_t address, const uint32_t (&x)[4], uint32_t barrier,
                        sim::Site site = sim::Site::here()) {
  sim::store_async(address, x, sizeof x, barrier, site);
}
inline void store_async(uint32_t address, uint32_t x, uint32_t barrier,
                        sim::Site site = sim::Site::here()) {
  sim::store_async(address, &x, sizeof x, barrier, site);
}

inline void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity,
                                  sim::Site site = sim::Site::here()) {
  sim::wait_mbarrier(barrier, parity, site);
}

inline void store_async(uint32_t address, const uint32_t (&x)[2], uint32_t barrier,
                        sim::Site site = sim::Site::here()) {
  sim::store_async(address, x, sizeof x, barrier, site);
}

}  // namespace flashcore::cuda::ptx

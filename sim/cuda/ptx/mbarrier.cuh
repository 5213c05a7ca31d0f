// Stands for src/cuda/ptx/mbarrier.cuh.
#pragma once

#include <cstdint>

#include "engine/mbarrier.hpp"
#include "engine/proxy_fence.hpp"

namespace flashcore::cuda::ptx {

inline void mbarrier_init(uint32_t barrier, uint32_t count, sim::Site site = sim::Site::here()) {
  sim::init_mbarrier(barrier, count, site);
}
inline void mbarrier_init_fence() {
  sim::publish_mbarriers();
  sim::fence_async_proxy();
}
inline void mbarrier_arrive(uint32_t barrier, sim::Site site = sim::Site::here()) {
  sim::arrive_at_mbarrier(barrier, 0, site);
}
inline void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes,
                                   sim::Site site = sim::Site::here()) {
  sim::arrive_at_mbarrier(barrier, bytes, site);
}
inline bool mbarrier_try_wait(uint32_t barrier, uint32_t parity,
                              sim::Site site = sim::Site::here()) {
  return sim::try_wait_mbarrier(barrier, parity, site);
}
inline void mbarrier_wait(uint32_t barrier, uint32_t parity, sim::Site site = sim::Site::here()) {
  sim::wait_mbarrier(barrier, parity, site);
}

// PTX does not guarantee that the lanes leave the loop together, and here they do not.
inline void mbarrier_wait_together(uint32_t barrier, uint32_t parity,
                                   sim::Site site = sim::Site::here()) {
  sim::wait_mbarrier(barrier, parity, site);
}

}  // namespace flashcore::cuda::ptx

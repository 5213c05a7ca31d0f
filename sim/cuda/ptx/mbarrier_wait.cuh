// Stands for src/cuda/ptx/mbarrier_wait.cuh.
#pragma once

#include <cstdint>

#include "engine/mbarrier.hpp"

namespace flashcore::cuda::ptx {

// PTX does not guarantee that the lanes leave the loop together, and here they do not.
inline void mbarrier_wait_together(uint32_t barrier, uint32_t parity,
                                   sim::Site site = sim::Site::here()) {
  sim::wait_mbarrier(barrier, parity, site);
}

}  // namespace flashcore::cuda::ptx

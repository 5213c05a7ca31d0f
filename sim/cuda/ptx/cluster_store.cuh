// Stands for src/cuda/ptx/cluster_store.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/tensor_copy.hpp"

namespace flashcore::cuda::ptx {

inline void store_async(uint32_t address, const uint32_t (&x)[2], uint32_t barrier,
                        sim::Site site = sim::Site::here()) {
  sim::store_async(address, x, sizeof x, barrier, site);
}

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/bulk_copy.cuh.
#pragma once

#include <cstdint>

#include "engine/tensor_copy.hpp"

namespace flashcore::cuda::ptx {

inline void bulk_load(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier,
                      sim::Site site = sim::Site::here()) {
  sim::load_bytes(shared, global, bytes, barrier, site);
}
// The simulator does not distinguish ordinary accesses and copies of global memory.
inline void fence_proxy_async_global() {}
inline void bulk_store(void* global, uint32_t shared, uint32_t bytes,
                       sim::Site site = sim::Site::here()) {
  sim::store_bytes(global, shared, bytes, site);
}
inline void bulk_add_f32(float* global, uint32_t shared, uint32_t bytes,
                         sim::Site site = sim::Site::here()) {
  sim::add_floats(global, shared, bytes, site);
}
template <int kPending>
void bulk_wait() {
  sim::wait_stores_written(kPending);
}

}  // namespace flashcore::cuda::ptx

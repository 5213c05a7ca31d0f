// Stands for src/cuda/ptx/cp_async.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/access.hpp"
#include "engine/cp_async.hpp"

namespace flashcore::cuda::ptx {

inline void cp_async_16(void* shared, const void* global, bool valid,
                        sim::Site site = sim::Site::here()) {
  sim::issue_cp_async(sim::shared_address(shared, site), valid ? global : nullptr, site);
}
inline void cp_async_16(void* shared, const void* global, sim::Site site = sim::Site::here()) {
  sim::issue_cp_async(sim::shared_address(shared, site), global, site);
}
inline void cp_async_16(uint32_t address, const uint4* global, sim::Site site = sim::Site::here()) {
  sim::issue_cp_async(address, global, site);
}
inline void cp_async_commit() { sim::commit_cp_async(); }
template <int kPending>
void cp_async_wait() {
  sim::wait_cp_async(kPending);
}
inline void cp_async_arrive(uint32_t barrier, sim::Site site = sim::Site::here()) {
  sim::arrive_after_cp_async(barrier, site);
}

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/sync.cuh.
#pragma once

#include "engine/barrier.hpp"
#include "engine/proxy_fence.hpp"

namespace flashcore::cuda::ptx {

inline void named_barrier_sync(int id, int threads, sim::Site site = sim::Site::here()) {
  sim::use_barrier({"barrier.sync", id, threads}, false, site);
}
inline void named_barrier_arrive(int id, int threads, sim::Site site = sim::Site::here()) {
  sim::use_barrier({"barrier.arrive", id, threads, false}, false, site);
}
inline bool named_barrier_or(int id, int threads, bool condition,
                             sim::Site site = sim::Site::here()) {
  return sim::use_barrier({"barrier.red.or", id, threads}, condition, site);
}
inline void fence_proxy_async() { sim::fence_async_proxy(); }

template <int kRegisters>
void release_registers(sim::Site site = sim::Site::here()) {
  sim::release_registers(kRegisters, site);
}
template <int kRegisters>
void acquire_registers(sim::Site site = sim::Site::here()) {
  sim::acquire_registers(kRegisters, site);
}

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/registers.cuh.
#pragma once

#include <cstdint>

#include "engine/collective.hpp"

namespace flashcore::cuda::ptx {

inline void assume_global(const void*) {}
inline uint32_t uniform(uint32_t x, sim::Site site = sim::Site::here()) {
  return sim::reduce_or(sim::kAllLanes, x, site);
}
inline void hold_back(bool) {}
inline uint64_t join_words(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

}  // namespace flashcore::cuda::ptx

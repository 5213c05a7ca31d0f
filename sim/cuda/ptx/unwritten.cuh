// Stands for src/cuda/ptx/unwritten.cuh.
#pragma once

#include <cstdint>

#include "engine/access.hpp"

namespace flashcore::cuda::ptx {

inline void may_be_unwritten(uint32_t address, uint32_t bytes) {
  if (bytes > 0) sim::allow_unwritten(sim::self(), address, bytes);
}
template <class T>
void may_be_unwritten(const T& object, sim::Site site = sim::Site::here()) {
  may_be_unwritten(sim::shared_address(&object, site), static_cast<uint32_t>(sizeof object));
}

}  // namespace flashcore::cuda::ptx

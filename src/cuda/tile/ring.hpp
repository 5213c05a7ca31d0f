// A position in a ring of kSlots buffers, counted the same way by producer and consumers.
#pragma once

#include <cstdint>

namespace flashcore::cuda::tile {

// The parity of the phase of the slot's barriers in the current round.
template <int kSlots>
struct Ring {
  uint32_t slot = 0, parity = 0;

  constexpr void next() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
};

}  // namespace flashcore::cuda::tile

// A place in a ring of kSlots buffers: producer and consumers count it alike.
#pragma once

#include <cstdint>

namespace flashcore::cuda::tile {

// The parity is that of the phase of the slot's barriers in the current round.
template <int kSlots>
struct Ring {
  uint32_t slot = 0, parity = 0;

  constexpr void next() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
};

}  // namespace flashcore::cuda::tile

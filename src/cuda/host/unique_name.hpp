// Unique 64-bit names for a plan's data in memory.
#pragma once

#include <cstdint>

namespace flashcore::cuda::host {

// Returns an even number that is unique in this process, with bits
// that memory used for something else is unlikely to contain.
uint64_t unique_name() noexcept;

}  // namespace flashcore::cuda::host

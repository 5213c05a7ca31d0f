// Names of 64 bits for what a plan leaves in memory.
#pragma once

#include <cstdint>

namespace flashcore::cuda::host {

// An even number that no other call in this process gets, with bits that memory which was used for
// something else hardly has by chance.
uint64_t unique_name() noexcept;

}  // namespace flashcore::cuda::host

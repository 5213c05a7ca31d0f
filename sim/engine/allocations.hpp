// The runtime's global memory. An access of device code must lie inside
// of one allocation; an unused page separates any two allocations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/site.hpp"

namespace flashcore::sim {

// Returns memory at a multiple of 256, filled with `poison`; null if there is no more.
void* allocate_global(size_t bytes, uint8_t poison);
// Returns false for a pointer that allocate_global has not returned, or that was freed.
bool free_global(void* memory);

// The range of addresses that allocate_global can return.
inline constinit uintptr_t first_global = 0, end_of_global = 0;
inline bool is_global(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  return at >= first_global && at < end_of_global;
}

class GlobalShadow;

struct Allocation {
  uintptr_t begin = 0;
  size_t bytes = 0;
  GlobalShadow* shadow = nullptr;  // null until the run has written to it

  bool has(uintptr_t at, uint64_t count) const {
    return at >= begin && at - begin <= bytes && count <= bytes - (at - begin);
  }
};

// Returns the allocation that contains these bytes, or null.
Allocation* find_allocation(const void* pointer, uint64_t bytes);

// Reports a fault, and ends the launch, for bytes of that range outside of all allocations;
// reports a fault for an address that is not a multiple of `alignment`, a power of two.
// Returns null for other pointers, which are allowed, as tests of kernels use host memory.
Allocation* check_global(const void* pointer, uint64_t bytes, uint32_t alignment, const char* what,
                         Site site);

}  // namespace flashcore::sim

// Global memory as the runtime hands it out. An access of device code must lie inside of one
// allocation; between any two lies a page that is nobody's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/site.hpp"

namespace flashcore::sim {

// At a multiple of 256, filled with `poison`; null when there is no more.
void* allocate_global(size_t bytes, uint8_t poison);
// False for what allocate_global has not given, or was given back.
bool free_global(void* memory);

// The addresses that allocate_global could give.
inline constinit uintptr_t first_global = 0, end_of_global = 0;
inline bool is_global(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  return at >= first_global && at < end_of_global;
}

class GlobalShadow;

struct Allocation {
  uintptr_t begin = 0;
  size_t bytes = 0;
  GlobalShadow* shadow = nullptr;  // since the run has written to it

  bool has(uintptr_t at, uint64_t count) const {
    return at >= begin && at - begin <= bytes && count <= bytes - (at - begin);
  }
};

// The allocation that has these bytes, or null.
Allocation* find_allocation(const void* pointer, uint64_t bytes);

// A fault, which ends the launch, for bytes in that range that are nobody's; one that does not for
// an address that is no multiple of `alignment`, a power of two. Other pointers pass, as tests of
// kernels use host memory: null for them.
Allocation* check_global(const void* pointer, uint64_t bytes, uint32_t alignment, const char* what,
                         Site site);

}  // namespace flashcore::sim

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

// Whether a pointer is between the first and the last byte that allocate_global could give.
bool is_global(const void* pointer);

// Whether these bytes lie inside of one allocation; false for pointers elsewhere.
bool is_allocated(const void* pointer, uint64_t bytes);

// A fault, which ends the launch, for bytes in that range that are nobody's; one that does not for
// an address that is no multiple of `alignment`. Other pointers pass: tests of kernels use host
// memory.
void check_global(const void* pointer, uint64_t bytes, uint32_t alignment, const char* what,
                  Site site);

}  // namespace flashcore::sim

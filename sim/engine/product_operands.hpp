// The location of wgmma operands in shared memory, according to their descriptors (tile/descriptor.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/site.hpp"

namespace flashcore::sim {

inline constexpr int kProductDepth = 16;  // k of one product of 16-bit elements

// A swizzle's pattern begins at the start of its 8 rows: only there is the base offset 0.
void check_descriptor(uint64_t descriptor, Site site);

// Appends the addresses of an operand's 16-byte pieces:
// two per row of k, or columns / 8 for each of the 16 k.
void k_major_pieces(std::vector<uint32_t>& pieces, uint64_t descriptor, int rows);
void mn_major_pieces(std::vector<uint32_t>& pieces, uint64_t descriptor, int columns);

}  // namespace flashcore::sim

// Matrix instructions of one warp: ldmatrix, stmatrix, mma.sync.
#pragma once

#include <cstdint>

#include "engine/matrix.hpp"
#include "engine/site.hpp"

namespace flashcore::sim {

void load_matrices(uint32_t (&r)[4], uint32_t row_address, bool transposed, Site site);
void store_matrices(uint32_t row_address, const uint32_t (&r)[4], bool transposed, Site site);

// Transposes 8x8 elements of 16 bits, in the layout of an ldmatrix register.
uint32_t transpose_matrix(uint32_t x, Site site);

// D(16x8) += A B with k = 16 (16-bit), 32 (e4m3) or 8 (tf32).
void multiply_m16n8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], ElementType type,
                    Site site);

// An access of this thread by address: `bytes` at a multiple of `bytes`.
void load_shared(uint32_t address, void* to, uint32_t bytes, Site site);
void store_shared(uint32_t address, const void* from, uint32_t bytes, Site site);

}  // namespace flashcore::sim

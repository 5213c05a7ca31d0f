// Small matrix products that simulate Tensor Cores, and element types.
//
// Products of 16-bit and narrower operands are exact in fp32. They are added to the accumulator one
// by one, in order of k, each sum rounded to fp32. (The hardware adds several at once and truncates.)
#pragma once

#include <cstdint>

namespace flashcore::sim {

enum class ElementType : int { f16, bf16, e4m3, tf32 };

// Widens an element: of 16 bits; of 8 bits for e4m3; of 32 for tf32.
float widen(uint32_t bits, ElementType type);

// d[m][n] += a[m][k] b[k][n], all row-major.
void multiply(float* d, const float* a, const float* b, int m, int n, int k);

}  // namespace flashcore::sim

// The matrix element of each (lane, register element) of a Tensor Core operand.
//
// mma.sync works on one warp, g = lane / 4, t = lane % 4; wgmma on four. An operand is named by its
// role: A (row, k), B (k, column), C (row, column), the accumulator. `e` counts elements in
// register order: 16-bit operands have two per register, 8-bit operands four, accumulators one.
//
//   m16n8k16          A e: register e/2            m16n8k32 (8-bit)   A e: register e/4
//        k 0..7   8..15                                 k 0..15  16..31
//   rows 0..7  [ 0 | 2 ]                          rows 0..7  [ 0 | 2 ]
//   rows 8..15 [ 1 | 3 ]                          rows 8..15 [ 1 | 3 ]
//
// The accumulators of two neighbouring m16n8 products, packed to 16 bits, are the A operand of an
// m16n8k16 product: P = softmax(S) needs no data movement before P V. With 8-bit operands the
// accumulators of four products hold the right rows but not the right k; see fp8_key_of_slot.
#pragma once

namespace flashcore::cuda::tile {

struct Cell {
  int row, column;
};

// m16n8k16, 16-bit: A is 16 x 16, e in 0..7.
constexpr Cell mma_k16_a(int lane, int e) {
  return {lane / 4 + 8 * ((e >> 1) & 1), 2 * (lane % 4) + (e & 1) + 8 * (e >> 2)};
}

// m16n8k16, 16-bit: B is 16 x 8, e in 0..3.
constexpr Cell mma_k16_b(int lane, int e) {
  return {2 * (lane % 4) + (e & 1) + 8 * (e >> 1), lane / 4};
}

// m16n8k32, 8-bit: A is 16 x 32, e in 0..15.
constexpr Cell mma_k32_a(int lane, int e) {
  return {lane / 4 + 8 * ((e >> 2) & 1), 4 * (lane % 4) + (e & 3) + 16 * (e >> 3)};
}

// m16n8k32, 8-bit: B is 32 x 8, e in 0..7.
constexpr Cell mma_k32_b(int lane, int e) {
  return {4 * (lane % 4) + (e & 3) + 16 * (e >> 2), lane / 4};
}

// Accumulator of every m16n8 product: 16 x 8, e in 0..3.
constexpr Cell mma_c(int lane, int e) {
  return {lane / 4 + 8 * (e >> 1), 2 * (lane % 4) + (e & 1)};
}

// Accumulator of a wgmma: 64 x N, thread 0..127 of the warpgroup, e in 0..N/2-1. Warp w has rows
// 16*w and up, as N / 8 accumulators of m16n8 side by side.
constexpr Cell wgmma_c(int thread, int e) {
  const Cell in_product = mma_c(thread % 32, e & 3);
  return {16 * (thread / 32) + in_product.row, 8 * (e >> 2) + in_product.column};
}

// 16-bit A operand of a wgmma in registers: 64 x 16, e in 0..7.
constexpr Cell wgmma_k16_a(int thread, int e) {
  const Cell in_warp = mma_k16_a(thread % 32, e);
  return {16 * (thread / 32) + in_warp.row, in_warp.column};
}

// 8-bit P V without data movement. Lane (g, t) packs its accumulators of four m16n8 products of
// S (32 keys; element i of product n) in the order of fp8_p_source into the 8-bit A operand. That
// puts key fp8_key_of_slot(s) into k-slot s, so V's rows must be read in the same order: the four
// slots 4t..4t+3 of each 16 hold the keys 2t, 2t+1, 2t+8, 2t+9.
constexpr int fp8_key_of_slot(int slot) {
  const int block = slot / 16, t = (slot % 16) / 4, j = slot % 4;
  return 16 * block + 2 * t + (j & 1) + 8 * (j >> 1);
}

struct AccumulatorElement {
  int product, e;
};

// The accumulator element that becomes byte e (0..15) of the 8-bit A operand.
constexpr AccumulatorElement fp8_p_source(int e) {
  const int half = (e >> 2) & 1, pair = (e >> 1) & 1, block = e >> 3;
  return {2 * block + pair, 2 * half + (e & 1)};
}

}  // namespace flashcore::cuda::tile

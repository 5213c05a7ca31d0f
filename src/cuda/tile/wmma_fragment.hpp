// The element of a WMMA m16n16k16 tile in each (lane, register), on sm_80 and later.
//
// nvcuda::wmma leaves the layout of its fragments unspecified. On sm_80 and later, every compiler
// so far builds one m16n16k16 product from two m16n8k16 instructions, whose layouts are documented,
// and the maps below follow from that. They are checked on the device (ladder/wmma_probe) before a
// kernel relies on them, and on the host for covering every element exactly once.
//
// With g = lane / 4 and t = lane % 4:
//
//   accumulator, 8 floats          A, 8 halves (row, k)           B, 8 halves (k, column)
//   x[0..1]  (g,     2t + 0..1)    x[0..1]  (g,     2t + 0..1)    x[0..1]  (2t + 0..1,     g)
//   x[2..3]  (g + 8, 2t + 0..1)    x[2..3]  (g + 8, 2t + 0..1)    x[2..3]  (2t + 8..9,     g)
//   x[4..5]  (g,     2t + 8..9)    x[4..5]  (g,     2t + 8..9)    x[4..5]  (2t + 0..1, g + 8)
//   x[6..7]  (g + 8, 2t + 8..9)    x[6..7]  (g + 8, 2t + 8..9)    x[6..7]  (2t + 8..9, g + 8)
//
// The operand fragments have 16 registers; x[8..15] repeat x[0..7].
#pragma once

namespace flashcore::cuda::tile {

inline constexpr int kWmmaTile = 16;
inline constexpr int kWmmaAccumulatorRegisters = 8;
inline constexpr int kWmmaOperandRegisters = 8;  // distinct ones; the fragment repeats them once

struct Coord {
  int row, column;
};

// A lane's accumulator registers are in two rows, g and g + 8: 0 for the first, 1 for the second.
constexpr int wmma_accumulator_row_slot(int reg) { return (reg >> 1) & 1; }

constexpr Coord wmma_accumulator(int lane, int reg) {
  return {lane / 4 + 8 * wmma_accumulator_row_slot(reg),
          2 * (lane % 4) + (reg & 1) + 8 * (reg / 4)};
}

// Operand A as (row, k): same positions as the accumulator.
constexpr Coord wmma_operand_a(int lane, int reg) { return wmma_accumulator(lane, reg); }

// Operand B as (k, column): A's map with the middle two register pairs exchanged.
constexpr Coord wmma_operand_b(int lane, int reg) {
  return {2 * (lane % 4) + (reg & 1) + 8 * ((reg >> 1) & 1), lane / 4 + 8 * (reg / 4)};
}

}  // namespace flashcore::cuda::tile

// V stored transposed: maps keys to columns. docs/semantics.md has the layout.
#pragma once

#include <cstdint>

namespace flashcore {

inline constexpr int64_t kColumnBlock = 128;  // V's columns are a multiple of this

// Columns 0 to 15 hold keys 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15, and each later group of 16
// repeats the pattern: the order in which fp8 tensor cores take the keys of P.
constexpr int64_t column_of_key(int64_t key) {
  const int64_t k = key % 16;
  return key - k + 4 * (k % 8 / 2) + 2 * (k / 8) + k % 2;
}

// The number of columns of the smallest V that holds `keys` keys.
constexpr int64_t columns_of_keys(int64_t keys) {
  return (keys + kColumnBlock - 1) / kColumnBlock * kColumnBlock;
}

}  // namespace flashcore

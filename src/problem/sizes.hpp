// Sizes computed from a problem, whose products may exceed 64 bits.
//
// All are at least 0. A size that does not fit is kTooLarge, and so is every size computed from it;
// a plan whose sizes are too large is refused.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace flashcore {

inline constexpr int64_t kTooLarge = std::numeric_limits<int64_t>::max();

constexpr int64_t product_of(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    if (__builtin_mul_overflow(product, factor, &product)) product = kTooLarge;
  }
  return product;
}

constexpr int64_t sum_of(std::initializer_list<int64_t> terms) {
  int64_t sum = 0;
  for (const int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) sum = kTooLarge;
  }
  return sum;
}

}  // namespace flashcore

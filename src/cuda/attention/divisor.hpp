// Division by divisors known on the host, without the GPU's slow integer division.
#pragma once

#include <bit>
#include <cstdint>

namespace flashcore::cuda::attention {

// n / d for n below 2^31 is (n * multiplier) >> shift: with l = ceil(log2 d), multiplier * d lies
// above 2^(31 + l) by at most 2^l, so the error stays below 2^-31 of n, less than one part of d.
struct Divisor {
  uint32_t multiplier, shift;

  constexpr uint32_t divide(uint32_t n) const {
    return static_cast<uint32_t>((uint64_t{n} * multiplier) >> shift);
  }
};

// Valid for d from 1 to 2^31 - 1.
constexpr Divisor divisor(uint32_t d) {
  const auto shift = static_cast<uint32_t>(31 + std::bit_width(d - 1));
  return {static_cast<uint32_t>((uint64_t{1} << shift) / d + 1), shift};
}

}  // namespace flashcore::cuda::attention

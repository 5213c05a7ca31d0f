// Scores in units of log2, as kernels hold them: 2^x is one instruction, and e^x = 2^(x log2(e)).
//
// Host code in double uses std::numbers::log2e.
#pragma once

#include <limits>
#include <numbers>

namespace flashcore::cuda::attention {

inline constexpr float kLog2E = std::numbers::log2e_v<float>, kLn2 = std::numbers::ln2_v<float>;

// The score of an invisible pair, the maximum of a row
// before its first key, and the LSE of a row without one.
inline constexpr float kNoKey = -std::numeric_limits<float>::infinity();

}  // namespace flashcore::cuda::attention

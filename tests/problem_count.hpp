// How many random problems a test draws.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashcore {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A fifth of `count` under a sanitizer, where each takes much longer; at least two.
constexpr uint64_t problem_count(uint64_t count) {
  return kSanitized ? std::max<uint64_t>(2, count / 5) : count;
}

}  // namespace flashcore

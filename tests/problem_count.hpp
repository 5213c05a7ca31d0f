// The number of random problems that a test draws, and of list elements that it uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace flashcore {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__clang__)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// Why a large test is skipped whose memory accesses smaller tests cover.
inline constexpr const char* kTooLong = "takes minutes under a sanitizer";

// A fifth of `count` under a sanitizer, where each problem takes much longer; at least two.
constexpr uint64_t problem_count(uint64_t count) {
  return kSanitized ? std::max<uint64_t>(2, count / 5) : count;
}

// Every fifth element of `all` under a sanitizer, from the first on: for lists whose elements
// differ in numbers, and not in the memory that they touch.
template <class T>
std::vector<T> problems_of(std::vector<T> all) {
  if constexpr (!kSanitized) return all;
  std::vector<T> some;
  for (size_t i = 0; i < all.size(); i += 5) some.push_back(std::move(all[i]));
  return some;
}

}  // namespace flashcore

// What the kernel stubs were launched with.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace flashcore::fake {

// True if the compiler clears the bytes between members, instead of leaving what lay there.
#if defined(__GNUC__) && !defined(__clang__)
inline constexpr bool kClearsPadding = true;
#else
inline constexpr bool kClearsPadding = false;
#endif

void keep_bytes(std::span<const std::byte> bytes);

// Keeps a launch's argument.
template <class T>
void keep(const T& given) {
  T argument = given;
#if defined(__GNUC__) && !defined(__clang__)
  __builtin_clear_padding(&argument);
#endif
  keep_bytes(std::as_bytes(std::span(&argument, 1)));
}

// The arguments of all launches since the last call, one after the other: what the driver copies
// when a kernel is launched.
std::vector<std::byte> take_arguments();

}  // namespace flashcore::fake

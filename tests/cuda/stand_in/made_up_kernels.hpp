// What the made-up kernels were launched with.
#pragma once

#include <cstddef>
#include <vector>

namespace flashcore::fake {

// Whether the bytes between members are zero in what follows, and not what lay there before.
#if defined(__GNUC__) && !defined(__clang__)
inline constexpr bool kClearsPadding = true;
#else
inline constexpr bool kClearsPadding = false;
#endif

// The arguments of all launches since the last call, one after the other: what the driver copies
// when a kernel is launched.
std::vector<std::byte> take_arguments();

}  // namespace flashcore::fake

// What the made-up kernels were launched with.
#pragma once

#include <cstddef>
#include <vector>

namespace flashcore::fake {

// The arguments of all launches since the last call, one after the other: what the driver copies
// when a kernel is launched.
std::vector<std::byte> take_arguments();

}  // namespace flashcore::fake

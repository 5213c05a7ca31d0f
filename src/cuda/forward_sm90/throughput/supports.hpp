// What forward_sm90_throughput computes. Needs no CUDA header.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// Which tile a kernel takes: the best of those that hold the head dimensions; or one of those up to
// head dimension 64, which are kernels for problems with a choice only.
// `pages`: keys and values lie in pages, and head dimensions have one tile.
enum class TileChoice { pages = -2, best = -1, q192_kv128 = 0, q64_kv128 = 1, q64_kv64 = 2 };

Supports supports(TileChoice tile = TileChoice::best);

}  // namespace flashcore::cuda::forward_sm90::throughput

// The blocks of memory that operator new handed out while a test watched. A program that links
// this has its own operator new.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

namespace flashcore {

struct WatchedHeap {
  std::array<std::pair<std::byte*, size_t>, 4096> blocks{};
  size_t count = 0;
  bool watched = false;
};
extern WatchedHeap watched_heap;

}  // namespace flashcore

// A file of its own: where these operators can be inlined, GCC sees one half of a pair only and
// warns that new and free do not match.
#include "tests/cuda/stubs/watched_heap.hpp"

#include <cstdlib>
#include <new>

namespace flashcore {

constinit WatchedHeap watched_heap;

}  // namespace flashcore

void* operator new(size_t size) {
  void* const block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) throw std::bad_alloc();
  flashcore::WatchedHeap& heap = flashcore::watched_heap;
  if (heap.watched && heap.count < heap.blocks.size()) {
    heap.blocks[heap.count++] = {static_cast<std::byte*>(block), size};
  }
  return block;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

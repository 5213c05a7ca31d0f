#include "stale_memory.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace flashcore::fake {
namespace {

std::byte stale{};

}  // namespace

void fill_with_stale(std::byte value) {
  stale = value;
  volatile std::byte stack[64 * 1024];
  for (volatile std::byte& one : stack) one = value;
}

}  // namespace flashcore::fake

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return std::memset(memory, static_cast<int>(flashcore::fake::stale), bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

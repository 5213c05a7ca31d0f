#include "leftovers.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace flashcore::fake {
namespace {

std::byte leftover{};

}  // namespace

void leave_over(std::byte value) {
  leftover = value;
  volatile std::byte stack[64 * 1024];
  for (volatile std::byte& one : stack) one = value;
}

}  // namespace flashcore::fake

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return std::memset(memory, static_cast<int>(flashcore::fake::leftover), bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

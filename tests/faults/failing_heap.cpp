#include "tests/faults/failing_heap.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace flashcore::tests {

constinit FailingHeap failing_heap;

namespace {

void* allocate_or_null(size_t size, size_t alignment) noexcept {
  if (failing_heap.until_failure.fetch_sub(1) == 1) return nullptr;
  const size_t whole = (size + alignment) / alignment * alignment;  // never 0
  void* const block = std::aligned_alloc(alignment, whole);
  if (block != nullptr) ++failing_heap.living;
  return block;
}

void* allocate(size_t size, size_t alignment) {
  void* const block = allocate_or_null(size, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void release(void* block) {
  if (block != nullptr) --failing_heap.living;
  std::free(block);
}

}  // namespace
}  // namespace flashcore::tests

// The forms for arrays call these; a sanitizer has forms without exceptions of its own.
void* operator new(size_t size) {
  return flashcore::tests::allocate(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(size_t size, std::align_val_t alignment) {
  return flashcore::tests::allocate(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return flashcore::tests::allocate_or_null(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return flashcore::tests::allocate_or_null(size, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept { flashcore::tests::release(block); }
void operator delete(void* block, size_t) noexcept { flashcore::tests::release(block); }
void operator delete(void* block, std::align_val_t) noexcept { flashcore::tests::release(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept {
  flashcore::tests::release(block);
}

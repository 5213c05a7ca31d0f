// Accesses that are not checked as ordinary ones: atomics, and loops that poll global memory.
#pragma once

#include <cstddef>
#include <cstring>

#include "engine/machine.hpp"

namespace flashcore::sim {

bool is_shared(const void* pointer);  // of this thread's block

[[noreturn]] void trap(Site site);

// Returns the shared memory that the launch requested.
unsigned char* dynamic_shared();

// Returns an object of `bytes` bytes in addition, identified by `name` in all threads of a block.
unsigned char* static_shared(const void* name, size_t bytes, size_t alignment, Site site);

// A point at which another thread may run first, followed
// by loads and stores that the compiler's hooks do not see.
class AtomicAccess {
 public:
  AtomicAccess(void* pointer, size_t bytes, Site site);

  template <class T>
  T load(const T* p) const {
    T x;
    copy(&x, p, sizeof x);
    return x;
  }
  template <class T>
  void store(T* p, const T& x) const {
    copy(p, &x, sizeof x);
  }

 private:
  static void copy(void* to, const void* from, size_t bytes);
};

// ld.acquire of global memory, polled until another block has written.
uint64_t load_acquire(const uint64_t* address, Site site);
uint32_t load_acquire(const uint32_t* address, Site site);

}  // namespace flashcore::sim

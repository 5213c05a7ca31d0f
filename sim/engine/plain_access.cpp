// Ordinary loads and stores of device code. Device code is compiled with -fsanitize=thread,
// which makes the compiler call these functions before each access; the sanitizer's own runtime
// is not linked. Accesses of shared memory and of wgmma's registers are checked; others pass.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/access.hpp"
#include "engine/allocations.hpp"
#include "engine/bank_conflicts.hpp"
#include "engine/global_shadow.hpp"
#include "engine/products.hpp"
#include "engine/scheduler.hpp"

namespace {

using namespace flashcore::sim;

// Inline functions of the simulator may be the copies compiled with device code.
bool is_checking = false;
class Checking {
 public:
  Checking() { is_checking = true; }
  ~Checking() { is_checking = false; }
  Checking(const Checking&) = delete;
  Checking& operator=(const Checking&) = delete;
};

// Records the count of wgmma.fence at the registers of an access.
void mark(const Thread& thread, size_t in_stack, uint64_t bytes) {
  if (fences == 0) return;
  uint32_t* const marks = thread.marks + in_stack / kWordBytes;
  const uint64_t words = std::min<uint64_t>(bytes, Stacks::kBytes - in_stack) + kWordBytes - 1;
  for (uint64_t i = 0; i < words / kWordBytes; ++i) marks[i] = fences;
}

// `alignment`: the compiler's knowledge of the address; the GPU requires the same.
void check(const void* pointer, uint64_t bytes, bool writes, uint32_t alignment,
           const void* program_counter) {
  Thread* const thread = current_thread;
  if (thread == nullptr || bytes == 0 || is_checking) return;
  const auto* const p = static_cast<const unsigned char*>(pointer);
  const Site site = Site::of_instruction(program_counter);
  const auto in_stack = static_cast<size_t>(p - thread->stack_bottom);
  if (in_stack < Stacks::kBytes) {
    mark(*thread, in_stack, bytes);
    if (thread->used_by_products.overlaps(p, bytes)) [[unlikely]] {
      const Checking guard;
      on_access_to_products(*thread, p, static_cast<uint32_t>(bytes), site);
    }
    return;
  }
  const Checking guard;
  const Block& block = *thread->block;
  if (p >= block.shared && p < block.shared + block.shared_bytes) {
    const uint32_t address = kFirstShared + static_cast<uint32_t>(p - block.shared);
    const auto size = static_cast<uint32_t>(bytes);
    check_range(block, address, size, alignment, writes ? "store" : "load", site);
    if (size <= kPieceBytes) count_lane_access(*thread, address, size, site);
    if (writes) {
      on_write(*thread, address, size, site);
    } else {
      on_read(*thread, address, size, site);
    }
    // Guard bytes surround shared memory: the access was out of bounds.
  } else if (p >= block.memory.data() && p < block.memory.data() + block.memory.size()) {
    report(Fault::outside_shared_memory, site, Site(),
           format("%s %s %td bytes from the start of %u", name_of(*thread).c_str(),
                  writes ? "stores" : "loads", p - block.shared, block.shared_bytes));
    is_checking = false;
    give_up();
  } else {
    is_checking = false;  // it may end the launch
    Allocation* const memory =
        check_global(pointer, bytes, alignment, writes ? "store" : "load", site);
    is_checking = true;
    if (writes) {
      on_global_write(memory, {pointer, bytes}, site);
    } else {
      on_global_read(memory, {pointer, bytes}, site);
    }
  }
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the compiler's names
extern "C" {
void __tsan_init() { ordinary_accesses_are_seen = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read1(void* p) { check(p, 1, false, 1, __builtin_return_address(0)); }
void __tsan_write1(void* p) { check(p, 1, true, 1, __builtin_return_address(0)); }
void __tsan_read2(void* p) { check(p, 2, false, 2, __builtin_return_address(0)); }
void __tsan_write2(void* p) { check(p, 2, true, 2, __builtin_return_address(0)); }
void __tsan_read4(void* p) { check(p, 4, false, 4, __builtin_return_address(0)); }
void __tsan_write4(void* p) { check(p, 4, true, 4, __builtin_return_address(0)); }
void __tsan_read8(void* p) { check(p, 8, false, 8, __builtin_return_address(0)); }
void __tsan_write8(void* p) { check(p, 8, true, 8, __builtin_return_address(0)); }
void __tsan_read16(void* p) { check(p, 16, false, 16, __builtin_return_address(0)); }
void __tsan_write16(void* p) { check(p, 16, true, 16, __builtin_return_address(0)); }
void __tsan_unaligned_read2(void* p) { check(p, 2, false, 1, __builtin_return_address(0)); }
void __tsan_unaligned_write2(void* p) { check(p, 2, true, 1, __builtin_return_address(0)); }
void __tsan_unaligned_read4(void* p) { check(p, 4, false, 1, __builtin_return_address(0)); }
void __tsan_unaligned_write4(void* p) { check(p, 4, true, 1, __builtin_return_address(0)); }
void __tsan_unaligned_read8(void* p) { check(p, 8, false, 1, __builtin_return_address(0)); }
void __tsan_unaligned_write8(void* p) { check(p, 8, true, 1, __builtin_return_address(0)); }
void __tsan_unaligned_read16(void* p) { check(p, 16, false, 1, __builtin_return_address(0)); }
void __tsan_unaligned_write16(void* p) { check(p, 16, true, 1, __builtin_return_address(0)); }
void __tsan_volatile_read1(void* p) { check(p, 1, false, 1, __builtin_return_address(0)); }
void __tsan_volatile_write1(void* p) { check(p, 1, true, 1, __builtin_return_address(0)); }
void __tsan_volatile_read2(void* p) { check(p, 2, false, 2, __builtin_return_address(0)); }
void __tsan_volatile_write2(void* p) { check(p, 2, true, 2, __builtin_return_address(0)); }
void __tsan_volatile_read4(void* p) { check(p, 4, false, 4, __builtin_return_address(0)); }
void __tsan_volatile_write4(void* p) { check(p, 4, true, 4, __builtin_return_address(0)); }
void __tsan_volatile_read8(void* p) { check(p, 8, false, 8, __builtin_return_address(0)); }
void __tsan_volatile_write8(void* p) { check(p, 8, true, 8, __builtin_return_address(0)); }
void __tsan_volatile_read16(void* p) { check(p, 16, false, 16, __builtin_return_address(0)); }
void __tsan_volatile_write16(void* p) { check(p, 16, true, 16, __builtin_return_address(0)); }
void __tsan_unaligned_volatile_read2(void* p) {
  check(p, 2, false, 1, __builtin_return_address(0));
}
void __tsan_unaligned_volatile_write2(void* p) {
  check(p, 2, true, 1, __builtin_return_address(0));
}
void __tsan_unaligned_volatile_read4(void* p) {
  check(p, 4, false, 1, __builtin_return_address(0));
}
void __tsan_unaligned_volatile_write4(void* p) {
  check(p, 4, true, 1, __builtin_return_address(0));
}
void __tsan_unaligned_volatile_read8(void* p) {
  check(p, 8, false, 1, __builtin_return_address(0));
}
void __tsan_unaligned_volatile_write8(void* p) {
  check(p, 8, true, 1, __builtin_return_address(0));
}
void __tsan_unaligned_volatile_read16(void* p) {
  check(p, 16, false, 1, __builtin_return_address(0));
}
void __tsan_unaligned_volatile_write16(void* p) {
  check(p, 16, true, 1, __builtin_return_address(0));
}
void __tsan_read_range(void* p, unsigned long n) {
  check(p, n, false, 1, __builtin_return_address(0));
}
void __tsan_write_range(void* p, unsigned long n) {
  check(p, n, true, 1, __builtin_return_address(0));
}
void* __tsan_memcpy(void* to, const void* from, unsigned long n) {
  check(from, n, false, 1, __builtin_return_address(0));
  check(to, n, true, 1, __builtin_return_address(0));
  return __builtin_memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, unsigned long n) {
  check(from, n, false, 1, __builtin_return_address(0));
  check(to, n, true, 1, __builtin_return_address(0));
  return __builtin_memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, unsigned long n) {
  check(to, n, true, 1, __builtin_return_address(0));
  return __builtin_memset(to, value, n);
}
// Called by the guards of static variables in functions.
unsigned char __tsan_atomic8_load(const volatile unsigned char* p, int) {
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
// Called by the counters of shared pointers.
unsigned __tsan_atomic32_fetch_add(volatile unsigned* p, unsigned x, int) {
  return __atomic_fetch_add(p, x, __ATOMIC_ACQ_REL);
}
unsigned __tsan_atomic32_fetch_sub(volatile unsigned* p, unsigned x, int) {
  return __atomic_fetch_sub(p, x, __ATOMIC_ACQ_REL);
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

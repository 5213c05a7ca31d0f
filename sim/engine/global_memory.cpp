#include "engine/global_memory.hpp"

#include <algorithm>

#include "engine/access.hpp"
#include "engine/allocations.hpp"
#include "engine/global_order.hpp"
#include "engine/global_shadow.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {

bool is_shared(const void* pointer) {
  const auto* const p = static_cast<const unsigned char*>(pointer);
  return p >= own_block().shared && p < own_block().shared + own_block().shared_bytes;
}

void trap(Site site) {
  report(Fault::trap, site, Site(), name_of(self()));
  give_up();
}

unsigned char* dynamic_shared() { return own_block().shared; }

unsigned char* static_shared(const void* name, size_t bytes, size_t alignment, Site site) {
  Block& block = own_block();
  const auto [known, is_new] = block.static_objects.try_emplace(name, 0);
  if (is_new) {
    const size_t begin = (block.shared_bytes + alignment - 1) / alignment * alignment;
    const size_t dynamic = block.cluster->grid->shared_bytes;
    if (begin + bytes >
        std::min<size_t>(dynamic + kMaxStaticBytes, own_block().cluster->grid->shared_limit)) {
      report(Fault::too_much_shared_memory, site, Site(),
             format("%zu bytes more than the %u that the block has", bytes, block.shared_bytes));
      give_up();
    }
    known->second = static_cast<uint32_t>(begin);
    block.shared_bytes = static_cast<uint32_t>(begin + bytes);
  }
  return block.shared + known->second;
}

AtomicAccess::AtomicAccess(void* pointer, size_t bytes, Site site) {
  maybe_yield();
  if (!is_shared(pointer)) {
    order_by_atomic(pointer, true);
    on_global_write(
        check_global(pointer, bytes, static_cast<uint32_t>(bytes), "atomic operation", site),
        {pointer, bytes, Use::atomic}, site);
    return;
  }
  const uint32_t address = own_offset(pointer, site);
  check_range(own_block(), address, static_cast<uint32_t>(bytes), static_cast<uint32_t>(bytes),
              "atomic operation", site);
  on_atomic(self(), address, static_cast<uint32_t>(bytes), site);
}

void AtomicAccess::copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

namespace {

template <class T>
T load_acquired(const T* address, Site site) {
  yield_in_loop({"ld.acquire", site});
  order_by_atomic(address, false);
  on_global_read(check_global(address, sizeof *address, sizeof *address, "ld.acquire", site),
                 {address, sizeof *address, Use::atomic}, site);
  acquire_global(self());
  T x;
  std::memcpy(&x, address, sizeof x);
  return x;
}

}  // namespace

uint64_t load_acquire(const uint64_t* address, Site site) { return load_acquired(address, site); }
uint32_t load_acquire(const uint32_t* address, Site site) { return load_acquired(address, site); }

}  // namespace flashcore::sim

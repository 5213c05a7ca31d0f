#include "engine/global_memory.hpp"

#include "engine/access.hpp"
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

AtomicAccess::AtomicAccess(void* pointer, size_t bytes) {
  maybe_yield();
  if (!is_shared(pointer)) return;
  // Atomics do not race with each other; what else touches the word is not checked against them.
  const uint32_t address = shared_address(pointer, Site());
  const Word& word = piece_at(own_block(), address).words[address % kPieceBytes / kWordBytes];
  if (word.in_flight) {
    report(Fault::write_to_bytes_in_flight, Site(), word.in_flight,
           format("an atomic operation of %zu bytes at shared %u, before the copy is awaited that "
                  "was started at",
                  bytes, address));
  }
}

void AtomicAccess::copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

uint64_t load_acquire(const uint64_t* address, Site site) {
  yield_in_loop({"ld.acquire", site});
  uint64_t x;
  std::memcpy(&x, address, sizeof x);
  return x;
}

}  // namespace flashcore::sim

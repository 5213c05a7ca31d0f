// Races in global memory: unordered plain accesses of one word by two
// threads, at least one of them a write. global_order.hpp defines the order.
//
// Each 4-byte word of an allocation that the launch writes has a record, created by
// the first write near it. Reads before an allocation's first write are not recorded:
// in another order of the threads, the write comes first, and the read is reported.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/allocations.hpp"
#include "engine/machine.hpp"
#include "engine/reads.hpp"

namespace flashcore::sim {

struct GlobalAccess {
  Epoch epoch = 0;  // 0: none
  Agent agent = 0;
  uint8_t bytes = 0;  // of the word, one bit each
  Use use = Use::plain;
  bool by_thread = true;  // false for a store that a thread started
  ClusterNumber cluster = 0;
  Site site;
};

struct GlobalWord {
  std::array<GlobalAccess, 2> writes;  // neighbouring 16-bit numbers have different writers
  Reads reads;                         // since the last write
  uint32_t agreed = 0;                 // bits that several lanes write, which must
  uint32_t value = 0;                  // all equal these
};

class GlobalShadow {
 public:
  explicit GlobalShadow(size_t bytes) : pages_((bytes + kPageBytes - 1) / kPageBytes) {}

  // Returns the word that begins `offset` bytes into the allocation.
  GlobalWord& word(size_t offset) {
    std::unique_ptr<Page>& page = pages_[offset / kPageBytes];
    if (page == nullptr) page = std::make_unique<Page>();
    return (*page)[offset % kPageBytes / kWordBytes];
  }
  // Returns null if nothing was written.
  GlobalWord* known_word(size_t offset) {
    Page* const page = pages_[offset / kPageBytes].get();
    return page == nullptr ? nullptr : &(*page)[offset % kPageBytes / kWordBytes];
  }
  // Calls each(offset, word).
  template <class Each>
  void for_each(Each each) {
    for (size_t p = 0; p < pages_.size(); ++p) {
      if (pages_[p] == nullptr) continue;
      for (size_t i = 0; i < pages_[p]->size(); ++i) {
        each(p * kPageBytes + i * kWordBytes, (*pages_[p])[i]);
      }
    }
  }

 private:
  static constexpr size_t kPageBytes = 512;
  using Page = std::array<GlobalWord, kPageBytes / kWordBytes>;
  std::vector<std::unique_ptr<Page>> pages_;
};

// An access by this thread of memory inside of the allocation; does nothing if that is null.
struct GlobalMemoryUse {
  const void* pointer;
  uint64_t bytes;
  Use use = Use::plain;
  Agent agent = 0;  // if `epoch` is not 0: the agent that acts for the thread, and its epoch
  Epoch epoch = 0;
};
void on_global_read(Allocation* allocation, const GlobalMemoryUse& access, Site site);
void on_global_write(Allocation* allocation, const GlobalMemoryUse& access, Site site);

// Ends a run: checks that lanes wrote the same values where required, and forgets its writes.
void end_global_races();

}  // namespace flashcore::sim

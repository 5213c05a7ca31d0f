#include "engine/global_shadow.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/global_order.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

// The allocations that the run has written, and their shadows.
struct Written {
  Allocation* allocation;
  std::unique_ptr<GlobalShadow> shadow;
};
std::vector<Written> all_written;

GlobalShadow& shadow_of(Allocation& allocation) {
  if (allocation.shadow == nullptr) {
    all_written.push_back(
        {&allocation, std::make_unique<GlobalShadow>(allocation.bytes + kWordBytes)});
    allocation.shadow = all_written.back().shadow.get();
  }
  return *allocation.shadow;
}

uint8_t byte_mask(uintptr_t word, uintptr_t begin, uint64_t bytes) {
  const uintptr_t first = std::max(begin, word), end = std::min(begin + bytes, word + kWordBytes);
  return static_cast<uint8_t>(((1u << (end - first)) - 1) << (first - word));
}

uint32_t bits_of(uint8_t bytes) {
  uint32_t bits = 0;
  for (uint32_t byte = 0; byte < kWordBytes; ++byte) {
    if ((bytes >> byte & 1) != 0) bits |= 0xffu << (8 * byte);
  }
  return bits;
}

// Reads the word's bytes that are inside the allocation.
uint32_t value_at(uintptr_t word) {
  uint32_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(word), sizeof value);
  return value;
}

void race(const Thread& thread, Site site, Site other, size_t offset, const char* verb,
          const char* other_verb) {
  report(Fault::race, site, other,
         format("%s %s byte %zu of an allocation of global memory, which nothing orders after the "
                "%s at",
                name_of(thread).c_str(), verb, offset, other_verb));
}

template <class Access>
bool may_race(const Access& other, uint8_t mask, Use use) {
  return (other.bytes & mask) != 0 && !(use == Use::atomic && other.use == use);
}

bool knows_all(const Thread& thread, const ReadersOfWarp& read) {
  return read.all(
      [&](Agent agent) { return knows_global(thread, read.cluster, agent, read.epoch); });
}
bool knows_write(const Thread& thread, const GlobalAccess& write) {
  return knows_global(thread, write.cluster, write.agent, write.epoch);
}

// Checks that the lanes of a warp that wrote the word at one line wrote the same value.
void check_agreement(GlobalWord& word, size_t offset, uintptr_t at) {
  if (word.agreed == 0) return;
  if (((value_at(at) ^ word.value) & word.agreed) != 0) {
    report(Fault::race, word.writes[0].site, word.writes[0].site,
           format("lanes of a warp write different values to byte %zu of an allocation of global "
                  "memory",
                  offset));
  }
  word.agreed = 0;
}

bool may_agree(const GlobalAccess& write, const GlobalAccess& mine) {
  return write.site == mine.site && write.cluster == mine.cluster &&
         write.agent / kLanes == mine.agent / kLanes && write.use == Use::plain &&
         write.by_thread && mine.by_thread;
}

GlobalAccess access_of(const Thread& thread, const GlobalMemoryUse& access, uint8_t mask,
                       Site site) {
  const bool by_thread = access.epoch == 0;
  return {.epoch = by_thread ? thread.now : access.epoch,
          .agent = by_thread ? thread.agent : access.agent,
          .bytes = mask,
          .use = access.use,
          .by_thread = by_thread,
          .cluster = thread.block->cluster->number,
          .site = site};
}

// Calls each(address of the word, its offset in the allocation, bytes of it in the access).
template <class Each>
void for_each_word(const Allocation& allocation, const GlobalMemoryUse& access, Each each) {
  const auto begin = reinterpret_cast<uintptr_t>(access.pointer), end = begin + access.bytes;
  for (uintptr_t at = begin / kWordBytes * kWordBytes; at < end; at += kWordBytes) {
    each(at, at - allocation.begin, byte_mask(at, begin, access.bytes));
  }
}

}  // namespace

void on_global_read(Allocation* allocation, const GlobalMemoryUse& access, Site site) {
  if (allocation == nullptr || allocation->shadow == nullptr) return;
  Thread& thread = self();
  const Use use = access.use;
  for_each_word(*allocation, access, [&](uintptr_t at, size_t offset, uint8_t mask) {
    GlobalWord* const word = allocation->shadow->known_word(offset);
    if (word == nullptr) return;
    check_agreement(*word, offset, at);
    for (const GlobalAccess& write : word->writes) {
      if (!may_race(write, mask, use) || knows_write(thread, write)) continue;
      race(thread, site, write.site, offset, "reads", "write");
    }
    auto mine = ReadersOfWarp::one(thread.agent, thread.now, mask, site);
    mine.cluster = thread.block->cluster->number;
    mine.use = use;
    word->reads.add(mine, [&](const ReadersOfWarp& read) { return knows_all(thread, read); });
  });
}

void on_global_write(Allocation* allocation, const GlobalMemoryUse& access, Site site) {
  if (allocation == nullptr) return;
  GlobalShadow& shadow = shadow_of(*allocation);
  Thread& thread = self();
  const Use use = access.use;
  for_each_word(*allocation, access, [&](uintptr_t at, size_t offset, uint8_t mask) {
    GlobalWord& word = shadow.word(offset);
    check_agreement(word, offset, at);
    const GlobalAccess mine = access_of(thread, access, mask, site);
    for (const GlobalAccess& write : word.writes) {
      if (!may_race(write, mask, use) || knows_write(thread, write)) continue;
      if (may_agree(write, mine)) {
        word.agreed |= bits_of(write.bytes & mask);
        word.value = value_at(at);
      } else {
        race(thread, site, write.site, offset, "writes", "write");
      }
    }
    word.reads.for_each([&](const ReadersOfWarp& read) {
      if (!may_race(read, mask, use) || knows_all(thread, read)) return;
      race(thread, site, read.site, offset, "writes", "read");
    });
    word.reads.clear();
    // The youngest write comes first; of an older one, only bytes that are not overwritten remain.
    if ((word.writes[0].bytes & ~mask) != 0) word.writes[1] = word.writes[0];
    word.writes[0] = mine;
  });
}

void end_global_races() {
  for (const Written& written : all_written) {
    written.shadow->for_each([&](size_t offset, GlobalWord& word) {
      check_agreement(word, offset, written.allocation->begin + offset);
    });
    written.allocation->shadow = nullptr;
  }
  all_written.clear();
}

}  // namespace flashcore::sim

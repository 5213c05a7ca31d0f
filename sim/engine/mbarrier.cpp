#include "engine/mbarrier.hpp"

#include "engine/access.hpp"
#include "engine/machine_parts.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

constexpr Epoch kInitialised = 1;
constexpr uint32_t kMbarrierBytes = 8;
constexpr unsigned kSeldom = 64;

std::string state_of(const Thread& thread) {
  uint32_t address = thread.waiting.address;
  const auto found = thread.block->mbarriers.find(address);
  if (found == thread.block->mbarriers.end()) return "gone";
  const Mbarrier& barrier = found->second;
  return format("at shared %u for parity %u, initialised at ", address, thread.waiting.parity) +
         barrier.site.text() +
         format(": %lld phases complete, %u of %u arrivals and %lld bytes to come",
                static_cast<long long>(barrier.phase), barrier.pending, barrier.count,
                static_cast<long long>(barrier.bytes));
}

void complete_phase(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.arriving.add(barrier.agent, barrier.phase_epoch(barrier.phase));
  barrier.completed = barrier.arriving.clock();
  ++barrier.phase;
  barrier.pending = barrier.count;
  // A wait looks again when its time is up: now and then, a thread does so only when no other can run.
  for (Thread* thread : barrier.waiting) {
    if (!chance(kSeldom)) wake(*thread);
  }
  barrier.waiting.clear();
}

// An arrival belongs to the intended phase only if the
// arriving thread knows that the previous phase is complete.
void check_phase(const Mbarrier& barrier, const Clock& seen, Site site) {
  if (barrier.phase == 0 || seen.of(barrier.agent) >= barrier.phase_epoch(barrier.phase - 1)) {
    return;
  }
  report(Fault::arrival_out_of_phase, site, barrier.site,
         format("%s arrives in phase %lld without having waited, directly or through others, for "
                "phase %lld of the mbarrier initialised for %u arrivals at",
                name_of(self()).c_str(), static_cast<long long>(barrier.phase),
                static_cast<long long>(barrier.phase - 1), barrier.count));
}

void count_arrival(Mbarrier& barrier, Site site) {
  if (barrier.pending == 0) {
    report(Fault::too_many_arrivals, site, barrier.site,
           format("%s: the phase has its %u arrivals; initialised at", name_of(self()).c_str(),
                  barrier.count));
    return;
  }
  --barrier.pending;
  complete_phase(barrier);
}

// Returns the phase that a wait for `parity` has seen complete; -1 is the phase before the first.
int64_t waited_phase(const Mbarrier& barrier) { return barrier.phase - 1; }

void note_wait(Mbarrier& barrier, Site site) {
  Thread& thread = self();
  const int64_t phase = waited_phase(barrier);
  const auto [entry, is_new] = thread.last_phase.try_emplace(&barrier, phase);
  if (!is_new && entry->second == phase) {
    report(Fault::phase_waited_for_twice, site, barrier.site,
           format("%s passes by phase %lld again at the mbarrier initialised at",
                  name_of(thread).c_str(), static_cast<long long>(phase)));
  }
  entry->second = phase;
  acquire(thread, barrier.completed);
}

}  // namespace

void init_mbarrier(uint32_t address, uint32_t count, Site site) {
  Block& block = own_block();
  address = own_address(address, site);
  check_range(block, address, kMbarrierBytes, kMbarrierBytes, "mbarrier.init", site);
  on_write(self(), address, kMbarrierBytes, site);
  Mbarrier& barrier = block.mbarriers[address];
  if (!barrier.waiting.empty() || barrier.pending != barrier.count || barrier.bytes != 0) {
    report(Fault::mbarrier_overwritten, site, barrier.site,
           "it is initialised again in the middle of a phase; before that at");
  }
  if (count == 0) {
    report(Fault::too_many_arrivals, site, Site(), "mbarrier.init for no arrivals");
    give_up();
  }
  const Agent agent = barrier.block != nullptr ? barrier.agent : new_agent(*block.cluster);
  barrier = {};
  barrier.block = &block, barrier.address = address;
  barrier.count = barrier.pending = count;
  barrier.agent = agent, barrier.initializer = self().agent;
  barrier.site = site;
  self().seen = join(self().seen, agent, kInitialised);
}

void publish_mbarriers() {
  for (auto& [address, barrier] : own_block().mbarriers) {
    if (barrier.initializer == self().agent) barrier.published = true;
  }
}

void release_published(Thread& thread, ClockJoin& to) {
  for (const auto& [address, barrier] : thread.block->mbarriers) {
    if (barrier.initializer == thread.agent && barrier.published) {
      to.add(barrier.agent, kInitialised);
    }
  }
}

Mbarrier& mbarrier_at(Block& block, uint32_t address, Site site) {
  const auto found = block.mbarriers.find(address);
  if (found == block.mbarriers.end()) {
    report(Fault::no_mbarrier, site, Site(),
           format("%s finds none at shared %u", name_of(self()).c_str(), address));
    give_up();
  }
  Mbarrier& barrier = found->second;
  if (self().seen.of(barrier.agent) < kInitialised) {
    report(Fault::no_mbarrier, site, barrier.site,
           format("%s cannot know of the initialisation at", name_of(self()).c_str()));
  }
  return barrier;
}

void check_published(const Mbarrier& barrier, Site site) {
  if (barrier.published) return;
  report(Fault::mbarrier_not_published, site, barrier.site,
         "no fence.mbarrier_init follows the initialisation at");
}

Clock phases_known_to(const Thread& issuer) {
  ClockJoin known;
  for (const auto& block : issuer.block->cluster->blocks) {
    for (const auto& [address, barrier] : block->mbarriers) {
      if (barrier.has_copies) continue;
      known.add(barrier.agent, issuer.seen.of(barrier.agent));
    }
  }
  return known.clock();
}

void deliver_bytes(Mbarrier& barrier, uint32_t bytes, const Clock& known_phases) {
  barrier.arriving.add(known_phases);
  barrier.bytes -= bytes;
  complete_phase(barrier);
}

void arrive_at_mbarrier(uint32_t address, int64_t bytes, Site site) {
  Block& block = resolve(address, site);
  Mbarrier& barrier = mbarrier_at(block, address, site);
  if (&block != &own_block()) check_published(barrier, site);
  check_phase(barrier, self().seen, site);
  release(self(), barrier.arriving);
  barrier.bytes += bytes;
  if (bytes != 0) barrier.has_copies = true;
  count_arrival(barrier, site);
  maybe_yield();
}

void arrive_later(Mbarrier& barrier, const Clock& issuer, Site site) {
  check_phase(barrier, issuer, site);
  barrier.arriving.add(issuer);
  count_arrival(barrier, site);
}

Access access_of_phase(const Mbarrier& barrier, Site site) {
  return {barrier.phase_epoch(barrier.phase), barrier.agent, 0, true, site};
}

bool try_wait_mbarrier(uint32_t address, uint32_t parity, Site site) {
  address = own_address(address, site);
  Mbarrier& barrier = mbarrier_at(own_block(), address, site);
  const auto is_complete = [&] { return (barrier.phase & 1) != (parity & 1); };
  if (!is_complete()) {
    barrier.waiting.push_back(&self());
    sleep({"mbarrier.try_wait", site, state_of, address, parity});
    std::erase(barrier.waiting, &self());
  }
  if (!is_complete()) return false;
  note_wait(barrier, site);
  return true;
}

void wait_mbarrier(uint32_t address, uint32_t parity, Site site) {
  while (!try_wait_mbarrier(address, parity, site)) {
  }
}

}  // namespace flashcore::sim

#include "engine/bank_conflicts.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

constexpr uint32_t kBanks = 32;

std::map<uint64_t, Conflicts> conflicts;

// Accesses at one line that wait for the warp's other lanes.
struct Gathering {
  std::array<std::deque<uint32_t>, kLanes> addresses;
};
std::map<std::pair<const Warp*, uint64_t>, Gathering> gatherings;

}  // namespace

void count_phase(const std::array<uint32_t, kLanes>& addresses, Site site) {
  if (!policy().count_bank_conflicts) return;
  std::array<std::set<uint32_t>, kBanks> words;  // distinct words of each bank
  for (const uint32_t address : addresses) {
    words[address / kWordBytes % kBanks].insert(address / kWordBytes);
  }
  size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  Conflicts& here = conflicts[site.bits()];
  ++here.cycles;
  here.extra += most - 1;
}

void count_lane_access(const Thread& thread, uint32_t address, uint32_t bytes, Site site) {
  if (!policy().count_bank_conflicts) return;
  Gathering& gathering = gatherings[{thread.warp, site.bits()}];
  gathering.addresses[static_cast<size_t>(thread.lane)].push_back(address);
  for (const auto& lane : gathering.addresses) {
    if (lane.empty()) return;
  }
  // 8-byte accesses take two halves of the warp, 16-byte accesses four quarters.
  const uint32_t words = std::max(bytes / kWordBytes, 1u), lanes = kLanes / words;
  for (uint32_t phase = 0; phase < words; ++phase) {
    std::array<uint32_t, kLanes> addresses{};
    for (uint32_t i = 0; i < kLanes; ++i) {
      const auto& lane = gathering.addresses[phase * lanes + i / words];
      addresses[i] = lane.front() + i % words * kWordBytes;
    }
    count_phase(addresses, site);
  }
  for (auto& lane : gathering.addresses) lane.pop_front();
}

std::map<uint64_t, Conflicts> take_bank_conflicts() {
  gatherings.clear();
  return std::exchange(conflicts, {});
}

}  // namespace flashcore::sim

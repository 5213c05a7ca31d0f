#include "engine/collective.hpp"

#include <bit>
#include <cstring>

#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

// Lists the lanes of the warp that are missing where `thread` waits.
std::string missing_lanes(const Thread& thread) {
  for (const Meeting& meeting : thread.warp->meetings) {
    if ((meeting.arrived >> thread.lane & 1) == 0) continue;
    return format("lanes 0x%08x of 0x%08x have come", meeting.arrived, meeting.mask);
  }
  return {};
}

// Compares names of instructions, which are mostly the same constant.
bool is_same(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }

Meeting& meeting_of(Warp& warp, const Collective& collective, Site site) {
  const uint32_t bit = 1u << self().lane;
  for (Meeting& meeting : warp.meetings) {
    const bool same_line = !collective.aligned || meeting.site == site;
    if (meeting.mask == collective.mask && same_line && is_same(meeting.what, collective.what)) {
      return meeting;
    }
    // Other lanes may be ahead, at an instruction that waits for
    // this lane, but not the lanes that this lane waits for.
    if ((meeting.mask & bit) == 0 || (collective.mask & meeting.arrived) == 0) continue;
    report(Fault::divergent_collective, site, meeting.site,
           format("%s is at %s (mask 0x%08x), other lanes at %s (mask 0x%08x),",
                  name_of(self()).c_str(), collective.what, collective.mask, meeting.what,
                  meeting.mask));
    give_up();
  }
  if ((collective.mask & bit) == 0 || (collective.mask & ~warp.live) != 0) {
    report(Fault::collective_without_lane, site, Site(),
           format("%s, %s: mask 0x%08x, lanes that run 0x%08x", collective.what,
                  name_of(self()).c_str(), collective.mask, warp.live));
    give_up();
  }
  warp.meetings.push_back({collective.what, collective.mask, 0, site, {}});
  return warp.meetings.back();
}

}  // namespace

void internal::meet(const Collective& collective, void* argument, Site site, Work work,
                    void* closure) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  Meeting& meeting = meeting_of(warp, collective, site);
  const uint32_t bit = 1u << thread.lane;
  meeting.arguments[static_cast<size_t>(thread.lane)] = argument;
  meeting.arrived |= bit;
  thread.waiting = {collective.what, site, missing_lanes};
  warp.ready &= ~bit;
  if (meeting.arrived == meeting.mask) {
    Meeting complete = meeting;
    std::erase_if(warp.meetings, [&](const Meeting& m) { return m.mask == complete.mask; });
    for (int lane = 0; lane < kLanes; ++lane) warp.lanes[lane].waiting.details = nullptr;
    if (work(closure, warp, complete)) {
      warp.ready |= complete.mask;
      // With a seed, the last lane to arrive does not always continue first.
      if (!chance(2)) return;
    }
  }
  leave();
}

void sync_warp(uint32_t mask, Site site) {
  meet({"__syncwarp", mask}, nullptr, site, [](Warp& warp, Meeting& meeting) {
    ClockJoin joined;
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((meeting.mask >> lane & 1) != 0) release(warp.lanes[lane], joined);
    }
    const Clock clock = joined.clock();
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((meeting.mask >> lane & 1) != 0) warp.lanes[lane].seen = clock;
    }
  });
}

uint32_t ballot(uint32_t mask, bool condition, Site site) {
  struct Vote {
    bool condition;
    uint32_t result;
  } vote{condition, 0};
  meet({"vote.sync", mask}, &vote, site, [](Warp&, Meeting& meeting) {
    uint32_t result = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto* const given = static_cast<Vote*>(meeting.arguments[lane]);
      if (given != nullptr && given->condition) result |= 1u << lane;
    }
    for (void* argument : meeting.arguments) {
      if (argument != nullptr) static_cast<Vote*>(argument)->result = result;
    }
  });
  return vote.result;
}

uint32_t shuffle(uint32_t mask, uint32_t value, int source, Site site) {
  struct Exchange {
    uint32_t value, result;
    int source;
  } exchange{value, 0, source & (kLanes - 1)};
  meet({"shfl.sync", mask}, &exchange, site, [&](Warp&, Meeting& meeting) {
    for (void* argument : meeting.arguments) {
      auto* const mine = static_cast<Exchange*>(argument);
      if (mine == nullptr) continue;
      const auto* const other =
          static_cast<Exchange*>(meeting.arguments[static_cast<size_t>(mine->source)]);
      if (other != nullptr) {
        mine->result = other->value;
      } else {
        report(Fault::collective_without_lane, site, Site(),
               format("shfl.sync reads lane %d, which is not of the mask 0x%08x", mine->source,
                      meeting.mask));
      }
    }
  });
  return exchange.result;
}

namespace {
template <class Combine>
uint32_t reduce(const char* what, uint32_t mask, uint32_t value, Site site, Combine combine) {
  struct Operand {
    uint32_t value, result;
  } operand{value, 0};
  meet({what, mask}, &operand, site, [&](Warp&, Meeting& meeting) {
    uint32_t result = 0;
    for (void* argument : meeting.arguments) {
      if (argument != nullptr) result = combine(result, static_cast<Operand*>(argument)->value);
    }
    for (void* argument : meeting.arguments) {
      if (argument != nullptr) static_cast<Operand*>(argument)->result = result;
    }
  });
  return operand.result;
}
}  // namespace

uint32_t reduce_or(uint32_t mask, uint32_t value, Site site) {
  return reduce("redux.sync.or", mask, value, site, [](uint32_t a, uint32_t b) { return a | b; });
}
uint32_t reduce_add(uint32_t mask, uint32_t value, Site site) {
  return reduce("redux.sync.add", mask, value, site, [](uint32_t a, uint32_t b) { return a + b; });
}

}  // namespace flashcore::sim

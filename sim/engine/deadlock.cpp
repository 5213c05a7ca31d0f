#include "engine/deadlock.hpp"

#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

// "consumer.cuh:20: mbarrier.try_wait (phase 3 ...)": the same text for threads in the same state.
std::string place_of(const Thread& thread) {
  const Waiting& waiting = thread.waiting;
  if (waiting.what == nullptr) return "nowhere";
  std::string text = waiting.site.text() + ": " + waiting.what;
  if (waiting.details != nullptr) text += " (" + waiting.details(thread) + ")";
  return text;
}

std::string lanes_text(uint32_t lanes) {
  return lanes == kAllLanes ? "all lanes" : format("lanes 0x%08x", lanes);
}

}  // namespace

void report_deadlock(const std::vector<Warp*>& warps) {
  std::string text = "nobody can go on:";
  Site site;
  for (const Warp* warp : warps) {
    std::vector<std::pair<std::string, uint32_t>> places;  // and the lanes there
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!warp->is_live(lane)) continue;
      const Thread& thread = warp->lanes[lane];
      if (!site) site = thread.waiting.site;
      const std::string place = place_of(thread);
      if (places.empty() || places.back().first != place) places.emplace_back(place, 0);
      places.back().second |= 1u << lane;
    }
    for (const auto& [place, lanes] : places) {
      text += format("\n  block %u warp %d, %s: ", warp->block->index.x, warp->index,
                     lanes_text(lanes).c_str()) +
              place;
    }
  }
  report(Fault::deadlock, site, Site(), text);
}

}  // namespace flashcore::sim

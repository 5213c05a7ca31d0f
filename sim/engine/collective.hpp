// Instructions that the lanes of a warp execute together: each lane waits until
// all lanes of the mask have arrived, and the last one does the work for all.
#pragma once

#include <type_traits>
#include <utility>

#include "engine/machine.hpp"

namespace flashcore::sim {

// Every lane of `mask` must execute the same instruction; if `aligned`, also at the same line.
struct Collective {
  const char* what;
  uint32_t mask = kAllLanes;
  bool aligned = false;
};

namespace internal {
using Work = bool (*)(void* closure, Warp& warp, Meeting& meeting);
void meet(const Collective& collective, void* argument, Site site, Work work, void* closure);
}  // namespace internal

// Waits for the others; the last lane to arrive runs work(warp, meeting), in which arguments[lane] is each
// lane's argument. All continue when it returns true (or nothing), otherwise when another thread wakes them.
template <class Work>
void meet(const Collective& collective, void* argument, Site site, Work work) {
  internal::meet(
      collective, argument, site,
      [](void* closure, Warp& warp, Meeting& meeting) {
        if constexpr (std::is_void_v<std::invoke_result_t<Work&, Warp&, Meeting&>>) {
          (*static_cast<Work*>(closure))(warp, meeting);
          return true;
        } else {
          return (*static_cast<Work*>(closure))(warp, meeting);
        }
      },
      &work);
}

void sync_warp(uint32_t mask, Site site);
uint32_t ballot(uint32_t mask, bool condition, Site site);
// Returns the value of lane `source` of the mask; lanes outside of it have no value.
uint32_t shuffle(uint32_t mask, uint32_t value, int source, Site site);
uint32_t reduce_or(uint32_t mask, uint32_t value, Site site);
uint32_t reduce_add(uint32_t mask, uint32_t value, Site site);

}  // namespace flashcore::sim

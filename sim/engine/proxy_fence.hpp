// fence.proxy.async: orders this thread's earlier ordinary
// accesses before copies and wgmma, once others know of the fence.
#pragma once

#include "engine/machine.hpp"

namespace flashcore::sim {

inline void fence_async_proxy() {
  Thread& thread = self();
  thread.fences.push_back(thread.now);
  ++thread.now;
}

}  // namespace flashcore::sim

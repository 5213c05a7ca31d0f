// fence.proxy.async: the ordinary accesses that this thread made come before what copies and wgmma
// do, once others know of the fence.
#pragma once

#include "engine/machine.hpp"

namespace flashcore::sim {

inline void fence_async_proxy() {
  Thread& thread = self();
  thread.fences.push_back(thread.now);
  ++thread.now;
}

}  // namespace flashcore::sim

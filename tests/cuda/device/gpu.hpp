// The GPU that the tests of this folder run on: the first, or the simulator's in a build with that.
#pragma once

#include "flashcore/flashcore.hpp"

namespace flashcore {

inline Device first_gpu() {
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind != DeviceKind::cpu) return info.device;
  }
  return {DeviceKind::cuda, 0};  // there is none: tests skip
}

}  // namespace flashcore

// The GPU that the tests of this folder run on: the first, or the simulator's in a build with that.
#pragma once

#include <cuda_runtime_api.h>

#include "flashcore/flashcore.hpp"

namespace flashcore {

inline Device first_gpu() {
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind != DeviceKind::cpu) return info.device;
  }
  return {DeviceKind::cuda, 0};  // there is none: tests skip
}

// Returns whether the GPU has compute capability 9.0.
inline bool has_hopper() {
  int count = 0, major = 0, minor = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return major == 9 && minor == 0;
}

}  // namespace flashcore

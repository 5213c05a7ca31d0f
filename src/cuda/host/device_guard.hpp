// Makes a GPU current during its lifetime, and the previous GPU current
// again afterwards, unless this thread's GPU was current only by default:
// that GPU may have no context, and making it current would create one.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/host/primary_context.hpp"

namespace flashcore::cuda::host {

class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    error_ = cudaGetDevice(&before_);
    if (error_ != cudaSuccess || before_ == device) return;
    error_ = cudaSetDevice(device);
    restore_ = error_ == cudaSuccess && has_primary_context(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (restore_) (void)cudaSetDevice(before_);
  }

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool restore_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace flashcore::cuda::host

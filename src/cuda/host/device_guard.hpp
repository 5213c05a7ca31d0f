// Makes a GPU the current one while it lives, and the one before it current again afterwards,
// unless this thread had a GPU current only by default: one without a context, which making it
// current would give it.
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

// Functions of the driver, found through the runtime: nothing links against libcuda.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

namespace flashcore::cuda::host {

// One function, looked up at its first use. A failed look-up is repeated,
// so that a call before the driver is ready does no lasting harm.
template <class Function>
class DriverEntry {
 public:
  // `version`: the driver interface that introduced it, 12000 for 12.0.
  constexpr DriverEntry(const char* name, unsigned version) : name_(name), version_(version) {}

  // `function` is null after an error.
  cudaError_t get(Function& function) {
    function = found_.load(std::memory_order_relaxed);
    if (function != nullptr) return cudaSuccess;
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name_, &entry, version_, cudaEnableDefault, &result);
    if (error != cudaSuccess) return error;
    if (result != cudaDriverEntryPointSuccess || entry == nullptr) return cudaErrorNotSupported;
    function = reinterpret_cast<Function>(entry);
    found_.store(function, std::memory_order_relaxed);
    return cudaSuccess;
  }

 private:
  const char* const name_;
  const unsigned version_;
  std::atomic<Function> found_{nullptr};
};

}  // namespace flashcore::cuda::host

// Memory of a plan's device, for the commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;                 // frees what it allocated
  virtual Result<void*> allocate(size_t bytes) = 0;  // aligned to 256 bytes
  virtual Status copy_in(void* to, std::span<const std::byte> from) = 0;
  virtual Status copy_out(std::span<std::byte> to, const void* from) = 0;
  // Fills `bytes` bytes with repetitions of `piece`, the last one truncated.
  virtual Status copy_tiled(void* to, size_t bytes, std::span<const std::byte> piece) = 0;
  virtual Status synchronise() = 0;  // waits for all runs, and reports their error
};

// The CUDA one is defined in device_memory_cuda.cpp or device_memory_no_cuda.cpp.
Result<std::unique_ptr<DeviceMemory>> device_memory(Device device);
Result<std::unique_ptr<DeviceMemory>> cuda_memory(int32_t index);

}  // namespace flashcore::bench

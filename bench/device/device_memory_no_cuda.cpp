// Builds without CUDA have no CUDA memory.
#include "bench/device/device_memory.hpp"

namespace flashcore::bench {

Result<std::unique_ptr<DeviceMemory>> cuda_memory(int32_t /*index*/) {
  return Status(StatusCode::unsupported, "device: is cuda, wanted cpu in a build without CUDA");
}

}  // namespace flashcore::bench

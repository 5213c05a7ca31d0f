#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "bench/device/cuda_error.hpp"
#include "bench/device/device_memory.hpp"

namespace flashcore::bench {
namespace {

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int32_t index) : index_(index) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override {
    for (void* block : blocks_) (void)cudaFree(block);
  }

  Result<void*> allocate(size_t bytes) override {
    FLASHCORE_RETURN_IF_ERROR(choose());
    void* block = nullptr;
    // The runtime aligns to at least 256 bytes.
    FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaMalloc(&block, std::max<size_t>(bytes, 1)),
                                          fmt::format("allocating {} bytes", bytes)));
    blocks_.push_back(block);
    return block;
  }
  Status copy_in(void* to, std::span<const std::byte> from) override {
    FLASHCORE_RETURN_IF_ERROR(choose());
    return cuda_status(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice),
                       "copying to the GPU");
  }
  Status copy_out(std::span<std::byte> to, const void* from) override {
    FLASHCORE_RETURN_IF_ERROR(choose());
    return cuda_status(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost),
                       "copying from the GPU");
  }
  // Copies one piece from the host, then doubles on the device: prefixes stay whole pieces.
  Status copy_tiled(void* to, size_t bytes, std::span<const std::byte> piece) override {
    size_t filled = std::min(bytes, piece.size());
    FLASHCORE_RETURN_IF_ERROR(copy_in(to, piece.first(filled)));
    for (; filled < bytes; filled += std::min(filled, bytes - filled)) {
      FLASHCORE_RETURN_IF_ERROR(
          cuda_status(cudaMemcpy(static_cast<std::byte*>(to) + filled, to,
                                 std::min(filled, bytes - filled), cudaMemcpyDeviceToDevice),
                      "repeating a piece on the GPU"));
    }
    return {};
  }
  Status synchronise() override {
    FLASHCORE_RETURN_IF_ERROR(choose());
    return cuda_status(cudaDeviceSynchronize(), "running on the GPU");
  }

 private:
  Status choose() const { return cuda_status(cudaSetDevice(index_), "choosing a GPU"); }

  int32_t index_;
  std::vector<void*> blocks_;
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> cuda_memory(int32_t index) {
  return std::unique_ptr<DeviceMemory>(std::make_unique<CudaMemory>(index));
}

}  // namespace flashcore::bench

#include "bench/device/device_memory.hpp"

#include <algorithm>
#include <new>
#include <vector>

namespace flashcore::bench {
namespace {

class HostMemory final : public DeviceMemory {
 public:
  Result<void*> allocate(size_t bytes) override {
    void* const memory = ::operator new(std::max<size_t>(bytes, 1), kAlignment, std::nothrow);
    if (memory == nullptr)
      return Status(StatusCode::out_of_memory, "memory: the host has none left");
    blocks_.emplace_back(static_cast<std::byte*>(memory));
    return memory;
  }
  Status copy_in(void* to, std::span<const std::byte> from) override {
    std::copy(from.begin(), from.end(), static_cast<std::byte*>(to));
    return {};
  }
  Status copy_out(std::span<std::byte> to, const void* from) override {
    std::copy_n(static_cast<const std::byte*>(from), to.size(), to.begin());
    return {};
  }
  Status copy_tiled(void* to, size_t bytes, std::span<const std::byte> piece) override {
    for (size_t at = 0; at < bytes; at += piece.size()) {
      std::copy_n(piece.begin(), std::min(piece.size(), bytes - at),
                  static_cast<std::byte*>(to) + at);
    }
    return {};
  }
  Status synchronise() override { return {}; }

 private:
  static constexpr std::align_val_t kAlignment{256};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> device_memory(Device device) {
  if (device.kind != DeviceKind::cpu) return cuda_memory(device.index);
  return std::unique_ptr<DeviceMemory>(std::make_unique<HostMemory>());
}

}  // namespace flashcore::bench

#include "evolve/evaluate/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "problem/status.hpp"

namespace flashcore::evolve {

Result<SharedMemory> SharedMemory::make(uint64_t bytes) {
  const int memory = ::memfd_create("candidate", MFD_CLOEXEC);
  if (memory < 0 || ::ftruncate(memory, static_cast<off_t>(bytes)) != 0) {
    if (memory >= 0) ::close(memory);
    return Status(StatusCode::out_of_memory,
                  fmt::format("memory: {} bytes cannot be shared", bytes));
  }
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (at == MAP_FAILED) {
    ::close(memory);
    return Status(StatusCode::out_of_memory,
                  fmt::format("memory: {} bytes cannot be mapped", bytes));
  }
  return SharedMemory(memory, static_cast<std::byte*>(at), bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(other.size_) {}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (memory_ >= 0) ::close(memory_);
}

Result<int> SharedMemory::open_for_child(bool writes) const {
  // A new file description, so that it, and not just a mapping, is read-only.
  const int opened =
      ::open(fmt::format("/proc/self/fd/{}", memory_).c_str(), writes ? O_RDWR : O_RDONLY);
  if (opened >= 0) return opened;
  return Status(StatusCode::internal, fmt::format("shared memory: {}", std::strerror(errno)));
}

}  // namespace flashcore::evolve

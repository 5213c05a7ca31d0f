// Memory that this process and a candidate's process share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "flashcore/flashcore.hpp"

namespace flashcore::evolve {

class SharedMemory {
 public:
  static Result<SharedMemory> make(uint64_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  uint64_t size() const { return size_; }

  // Returns a descriptor that children inherit; the caller closes it. A read-only one cannot be
  // mapped for writing.
  Result<int> open_for_child(bool writes) const;

 private:
  SharedMemory(int memory, std::byte* data, uint64_t size)
      : memory_(memory), data_(data), size_(size) {}
  int memory_;
  std::byte* data_;
  uint64_t size_;
};

}  // namespace flashcore::evolve

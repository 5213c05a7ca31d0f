// The simulator's tensor map: the contents of a GPU's CUtensorMap are undocumented.
#pragma once

#include <array>
#include <cstdint>

namespace flashcore::sim {

// For tensors of rank 4 or 5; rank 4 has an additional index of 0.
using TensorCoordinates = std::array<int, 5>;  // elements, innermost first

struct TensorMap {
  static constexpr uint64_t kMagic = 0x70616d726f736e65;

  uint64_t magic = 0;  // kMagic if the map has been written
  const unsigned char* base = nullptr;
  std::array<int64_t, 5> extent{1, 1, 1, 1, 1};  // elements
  std::array<int64_t, 5> stride{};               // bytes; the first is an element's size
  std::array<int, 5> box{1, 1, 1, 1, 1};         // elements
  int span = 0;                                  // swizzle width: 128, 64 or 32 bytes; 0: none

  int64_t element_bytes() const { return stride[0]; }
  uint32_t row_bytes() const { return static_cast<uint32_t>(box[0] * stride[0]); }
  uint32_t box_bytes() const {
    return row_bytes() * static_cast<uint32_t>(box[1] * box[2] * box[3] * box[4]);
  }
};

// Returns the position of 16-byte piece `address` in a swizzle of `span` bytes: address bits
// 4 and up are XORed with those from bit 7 on, 3 of them for 128 bytes, 2 for 64, 1 for 32.
constexpr uint32_t swizzled(uint32_t address, int span) {
  if (span == 0) return address;
  return address ^ (((address >> 7) & static_cast<uint32_t>(span / 16 - 1)) << 4);
}

}  // namespace flashcore::sim

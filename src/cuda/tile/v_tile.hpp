// A tile of an fp8 V on its way between rows of keys and rows of dimensions (docs/semantics.md): in
// shared memory as rows of keys.
//
// Each 16 keys lie one word further on, so that the threads of a warp, which have keys of all eight groups
// of 16, find them in different banks.
#pragma once

namespace flashcore::cuda::tile {

struct VTile {
  static constexpr int kColumns = 128;  // kColumnBlock
  static constexpr int kDims = 64;
  static constexpr int kChunk = 16;                  // bytes that a thread moves at once
  static constexpr int kGroups = kColumns / kChunk;  // of keys
  static constexpr int kPitch = kDims + 4;           // bytes from a key to the next

  unsigned char values[kColumns * kPitch + kGroups * 4];

  static constexpr int place_of(int key) { return key * kPitch + key / kChunk * 4; }
};

}  // namespace flashcore::cuda::tile

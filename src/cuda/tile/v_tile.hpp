// A tile of an fp8 V during its conversion between keys as rows and
// dimensions as rows (docs/semantics.md): in shared memory, keys are rows.
//
// Every 16 keys are followed by a word of padding, so that the threads of a
// warp, which access keys of all eight groups of 16, use different banks.
#pragma once

namespace flashcore::cuda::tile {

struct VTile {
  static constexpr int kColumns = 128;  // kColumnBlock
  static constexpr int kDims = 64;
  static constexpr int kChunk = 16;                  // bytes per thread and access
  static constexpr int kGroups = kColumns / kChunk;  // of keys
  static constexpr int kPitch = kDims + 4;           // bytes from one key to the next

  unsigned char values[kColumns * kPitch + kGroups * 4];

  static constexpr int place_of(int key) { return key * kPitch + key / kChunk * 4; }
};

}  // namespace flashcore::cuda::tile

// Tiles and shared memory of mla_sm90. There is one config.
//
//   slot 0 | slot 1 | slot 2 | last 64 columns of Q | columns 496 to 511 of Q | block state
//
// A slot is a tile of 64 keys, or of 64 rows of Q on their way to registers. Its rows lie in groups of 8,
// a group in panels of 64 columns: a box of a group is as contiguous in shared memory as in a cache.
//
//   group 0: panel 0 of 8 rows | ... | panel 8 of 8 rows | group 1: ...
//
// Panel 8 of a tile of keys is of no use once the scores are known: the probabilities replace it.
#pragma once

#include <cstdint>

namespace flashcore::cuda::mla_sm90::latent {

inline constexpr int kHeadDimQk = 576, kHeadDimV = 512;
inline constexpr int kRows = 64;      // heads of a query: a row of the products each
inline constexpr int kTileKeys = 64;  // keys of a tile
inline constexpr int kThreads =
    384;  // a warpgroup for scores, and two for the halves of V's columns
inline constexpr int kWarps = kThreads / 32;

inline constexpr int kPanelColumns = 64, kPanels = kHeadDimQk / kPanelColumns;
inline constexpr int kVPanels = kHeadDimV / kPanelColumns;
inline constexpr int kGroupRows = 8, kGroups = kTileKeys / kGroupRows;
inline constexpr uint32_t kPanelBytes = kGroupRows * 128, kGroupBytes = kPanels * kPanelBytes;
inline constexpr uint32_t kSlotBytes = kGroups * kGroupBytes;
inline constexpr int kSlots = 3;

// Steps of 16 columns in a product of Q and K: most have their rows of Q in registers, which
// has no room for one more; the last panel's are in shared memory, too.
inline constexpr int kSteps = kHeadDimV / 16, kHeldSteps = kSteps - 1, kRopeSteps = 4;
// After so many of the 36 steps, the products with V may begin: they then run under the softmax.
inline constexpr int kEarlySteps = 24;

inline constexpr uint32_t kRopeAt = kSlots * kSlotBytes, kRopeBytes = kRows * 128;
inline constexpr uint32_t kLastStepAt = kRopeAt + kRopeBytes, kLastStepBytes = kRows * 32;
inline constexpr uint32_t kBlockStateAt = kLastStepAt + kLastStepBytes;

// Policies of L2 (createpolicy.fractional): lines that are read once are the first to go, where few blocks
// read the same keys.
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000, kEvictNormal = 0x1000000000000000;
inline constexpr int kFewTiles = 2;  // of rows

// Registers of a thread after the launch's are shared out.
inline constexpr int kScoreRegisters = 184, kValueRegisters = 160;

// What the warpgroups tell each other. Scratch of the search for units before the first tile.
struct BlockState {
  float factor[kSlots][kRows];          // of rows of O, from before the slot's keys on
  uint64_t full[kSlots];                // the slot is loaded
  uint64_t ready[kSlots];               // its probabilities are there, or Q has left it
  uint64_t go[kSlots];                  // the next scores are nearly done
  uint64_t empty[kSlots];               // it may be loaded again
  uint32_t raised[kSlots][kRows / 16];  // whether a warp's rows have factors other than 1
};
inline constexpr uint32_t kSharedBytes = kBlockStateAt + sizeof(BlockState);
static_assert(kSharedBytes <= 232448);

// The second kernel has a warp per 128 columns for each slice of a row's parts, and many slices where few rows have many
// parts.
inline constexpr int kSliceThreads = 128, kManySlices = 4;

}  // namespace flashcore::cuda::mla_sm90::latent

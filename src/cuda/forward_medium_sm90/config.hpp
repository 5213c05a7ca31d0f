// The resource page of forward_medium_sm90: a block computes 128 queries.
//
//   a block   two warpgroups of 64 queries each, which read the same tiles of keys
//   memory    | Q of each | K and V tiles, a ring | barriers | messages |
//
// A cluster is one block, or two that have every other tile of keys each and merge once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace flashcore::cuda::forward_medium_sm90 {

inline constexpr int kGroupQ = 64;  // queries of a warpgroup
inline constexpr int kGroups = 2;   // warpgroups of a block
inline constexpr int kBlockQ = kGroups * kGroupQ;
inline constexpr int kBlockKv = 64;  // keys of a tile
inline constexpr int kGroupThreads = 128, kGroupWarps = 4;
inline constexpr int kWarps = kGroups * kGroupWarps, kThreads = 32 * kWarps;
inline constexpr int kPanelColumns = 64;          // 128 bytes, the swizzle
inline constexpr int kSharedMemory = 227 * 1024;  // of a block

// A structural type: the one template argument that a kernel's geometry is.
struct Config {
  int head_dim;  // the larger of Q's and V's is at most this; the rest is padded with zeros
  int ranks;     // blocks of a cluster
  int slots;     // tiles of keys in memory at once, and as many of values

  constexpr int tile_bytes() const { return 2 * kBlockKv * head_dim; }
  constexpr int tiles() const { return kGroups + 2 * slots; }
  // What a warp sends to the other block: half of the columns of 16 rows, and two log-sum-exps a
  // lane.
  constexpr int message_bytes() const { return 4 * 16 * head_dim / 2 + 2 * 4 * 32; }
  constexpr int messages() const { return ranks > 1 ? kWarps : 0; }
  constexpr int smem_bytes() const {
    const int barriers = 8 * (tiles() + kWarps + kGroups) + 4 * slots;
    return tile_bytes() * tiles() + (barriers + 15) / 16 * 16 + messages() * message_bytes();
  }
};

inline constexpr std::array kConfigs = {Config{.head_dim = 128, .ranks = 1, .slots = 5},
                                        Config{.head_dim = 128, .ranks = 2, .slots = 5}};
inline constexpr int kLargestHeadDim = 128;

// Index into kConfigs, or -1 when a head dimension is too large. `split`: there are SMs for two
// blocks a tile of queries.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, bool split) {
  for (std::size_t i = 0; i < kConfigs.size(); ++i) {
    const Config& config = kConfigs[i];
    if (head_dim_qk > config.head_dim || head_dim_v > config.head_dim) continue;
    if (split == (config.ranks > 1)) return static_cast<int>(i);
  }
  return -1;
}

// What the kernels rely on.
constexpr bool is_sound(const Config& c) {
  constexpr int kTileAlignment = 1024;
  return c.head_dim % kPanelColumns == 0 && c.tile_bytes() % kTileAlignment == 0 &&
         c.message_bytes() % 16 == 0 && c.slots >= kWarps / 2 && c.slots <= kWarps &&
         c.smem_bytes() <= kSharedMemory;
}
static_assert([] {
  for (const Config& config : kConfigs) {
    if (!is_sound(config)) return false;
  }
  return true;
}());

}  // namespace flashcore::cuda::forward_medium_sm90

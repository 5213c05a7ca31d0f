// The resource page of forward_small_sm90: one cluster of two blocks computes 64 queries.
//
//   a block   two warpgroups that compute, and one warp that copies
//   memory    | Q | K slots of warpgroup 0, 1 | V slots of 0, 1 | messages | barriers |
//
// Each of the four warpgroups of a cluster has its own keys (split.hpp) and its own ring of slots.
// A problem whose keys fit the slots is loaded at once, without a wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace flashcore::cuda::forward_small_sm90 {

inline constexpr int kBlockQ = 64;   // queries of a cluster
inline constexpr int kBlockKv = 64;  // keys of a tile
inline constexpr int kRanks = 2;     // blocks of a cluster
inline constexpr int kGroups = 2;    // warpgroups of a block that compute
inline constexpr int kParts = kRanks * kGroups;
inline constexpr int kGroupThreads = 128, kGroupWarps = 4;
inline constexpr int kConsumers = kGroups * kGroupThreads;
inline constexpr int kThreads = kConsumers + 32;
inline constexpr int kPanelColumns = 64;  // 128 bytes, the swizzle
inline constexpr int kSharedMemory = 227 * 1024;

// A structural type: the one template argument that a kernel's geometry is.
struct Config {
  int head_dim;  // the larger of Q's and V's is at most this; the rest is padded with zeros
  int slots;     // K tiles of a warpgroup, and as many V tiles

  constexpr int resident_keys() const { return kParts * slots * kBlockKv; }
  constexpr int tile_bytes() const { return 2 * kBlockKv * head_dim; }
  constexpr int column_halves() const { return head_dim / 64; }  // 32-column pieces of a half row

  // What a warp sends to another for a quarter of its outputs: 16 bytes a lane and piece, and eight
  // log-sum-exps; then padding to 16 bytes.
  constexpr int message_bytes() const { return 512 * column_halves() + 32; }
  constexpr int messages() const { return kGroups * kGroupWarps * (1 + kGroups); }

  constexpr int barriers() const { return 1 + 4 * kGroups * slots + kGroups; }
  constexpr int smem_bytes() const {
    return tile_bytes() * (1 + 2 * kGroups * slots) + messages() * message_bytes() + 8 * barriers();
  }
};

// By growing cost: the first that holds a problem's head dimensions, and its keys if any does,
// computes it.
inline constexpr std::array kConfigs = {Config{.head_dim = 64, .slots = 2},
                                        Config{.head_dim = 64, .slots = 4},
                                        Config{.head_dim = 128, .slots = 2}};
inline constexpr int kLargestHeadDim = 128;

// Index into kConfigs, or -1 when a head dimension is too large.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int64_t seqlen_kv) {
  int chosen = -1;
  for (std::size_t i = 0; i < kConfigs.size(); ++i) {
    const Config& config = kConfigs[i];
    const bool wider =
        chosen >= 0 && config.head_dim > kConfigs[static_cast<size_t>(chosen)].head_dim;
    if (head_dim_qk > config.head_dim || head_dim_v > config.head_dim || wider) continue;
    chosen = static_cast<int>(i);
    if (seqlen_kv <= config.resident_keys()) break;
  }
  return chosen;
}

// What the kernels rely on.
constexpr bool is_sound(const Config& c) {
  constexpr int kTileAlignment = 1024;
  return c.head_dim % kPanelColumns == 0 && c.slots >= 2 && c.tile_bytes() % kTileAlignment == 0 &&
         c.message_bytes() % 16 == 0 && c.smem_bytes() <= kSharedMemory;
}
static_assert([] {
  for (const Config& config : kConfigs) {
    if (!is_sound(config)) return false;
  }
  return true;
}());

}  // namespace flashcore::cuda::forward_small_sm90

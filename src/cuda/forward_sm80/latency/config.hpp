// The resource page of forward_sm80_latency: one block computes 32 queries.
//
//   a block   `warps` warps, each with its own keys: tile t of `warp_keys` keys belongs to warp t % warps
//   memory    | Q | K, V of warp 0 | K, V of warp 1 | ...
//
// At the end, each warp writes its partial outputs over its keys and values: 32 rows, fp32.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace flashcore::cuda::forward_sm80::latency {

inline constexpr int kBlockQ =
    32;  // queries per block: two groups of 16 rows share every operand fragment
inline constexpr int kRowGroups = kBlockQ / 16;
inline constexpr int kSmallSharedMemory = 99 * 1024;  // per block on sm_86 and sm_89

// A structural type: the single template argument that describes a kernel's geometry.
struct Config {
  int head_dim;  // upper bound of Q's and V's; the rest is padded with zeros
  int warps;
  int warp_keys;

  constexpr int threads() const { return 32 * warps; }
  constexpr int pass_keys() const { return warps * warp_keys; }  // in a block at once
  constexpr int q_bytes() const { return 2 * kBlockQ * head_dim; }
  constexpr int kv_bytes() const { return 2 * warp_keys * head_dim; }  // K or V, per warp
  constexpr int smem_bytes() const { return q_bytes() + 2 * warps * kv_bytes(); }
  constexpr int thread_outputs() const { return kBlockQ * head_dim / threads(); }
};

// Two per head dimension: the first takes one SM for itself, the second shares it.
inline constexpr std::array kConfigs = {
    Config{.head_dim = 64, .warps = 8, .warp_keys = 64},
    Config{.head_dim = 64, .warps = 4, .warp_keys = 64},
    Config{.head_dim = 128, .warps = 8, .warp_keys = 32},
    Config{.head_dim = 128, .warps = 4, .warp_keys = 32},
};
inline constexpr int kLargestHeadDim = 128;

// The additional static shared memory of a block, for maxima and sums.
constexpr int static_bytes(const Config& c) { return 2 * c.warps * kBlockQ * 4; }

// Up to this number of keys, the second one is always faster.
inline constexpr int64_t kFewKeys = 256;

// Returns an index into kConfigs, or -1 if a head dimension is too large
// or no tile fits. one_wave: no two blocks would have to share one SM.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int64_t seqlen_kv,
                            bool one_wave, int64_t shared_memory) {
  int chosen = -1;
  for (std::size_t i = 0; i < kConfigs.size(); ++i) {
    const Config& c = kConfigs[i];
    if (head_dim_qk > c.head_dim || head_dim_v > c.head_dim ||
        c.smem_bytes() + static_bytes(c) > shared_memory) {
      continue;
    }
    if (chosen >= 0 && kConfigs[static_cast<std::size_t>(chosen)].head_dim != c.head_dim) break;
    chosen = static_cast<int>(i);
    if (one_wave && seqlen_kv > kFewKeys) break;
  }
  return chosen;
}

// Checks what the kernels rely on.
constexpr bool is_sound(const Config& c) {
  return c.head_dim % 64 == 0 && c.warp_keys % 32 == 0 && kBlockQ % c.warps == 0 &&
         4 * kBlockQ * c.head_dim <= 2 * c.kv_bytes() && c.thread_outputs() % 8 == 0;
}
static_assert(std::ranges::all_of(kConfigs, is_sound));
static_assert(choose_config(64, 64, 4096, true, kSmallSharedMemory) >= 0);
static_assert(choose_config(128, 128, 4096, true, kSmallSharedMemory) >= 0);

}  // namespace flashcore::cuda::forward_sm80::latency

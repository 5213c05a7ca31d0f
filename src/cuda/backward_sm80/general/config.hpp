// The resource page of backward_sm80: tiles, registers and shared memory of its compiled kernels.
//
// There are two kinds of kernels. A joint kernel computes dQ, dK and dV in one loop: see
// joint.cuh. In the others, a block owns a tile of rows of queries or of keys, 16 per
// warp, and walks over the tiles of the other side. X are the owned rows and Y the
// others. If X are queries, X1, X2 = Q, dO and Y1, Y2 = K, V; if X are keys, vice versa:
//
//   S = X1 Y1^T | T = X2 Y2^T | P, dS from S and T | first += dS Y1 | second += P Y2
//
// first is dQ of queries, dK of keys; second is dV of keys. Accumulators of S and T are
// directly the left operands of the next products, so only Y passes through shared memory.
#pragma once

#include <algorithm>
#include <array>

namespace flashcore::cuda::backward_sm80::general {

// The outputs of a launch. Wide sums leave no registers for both dK and dV: see has_both().
enum class Output { dq, dk_dv, dk, dv, d_bias, joint };

constexpr bool owns_queries(Output output) {
  return output == Output::dq || output == Output::d_bias;
}
constexpr bool has_first(Output output) {
  return output == Output::dq || output == Output::dk_dv || output == Output::dk;
}
constexpr bool has_second(Output output) { return output == Output::dk_dv || output == Output::dv; }

// The options that a kernel checks: only the band, or all.
enum class Features { none, all };

struct Config {
  int head_dim;  // of Q, K, V and dO, padded
  int element_bytes;
  int warps;
  int block_y;  // rows per tile of the other side
  int stages;   // tiles of the other side in shared memory

  constexpr int threads() const { return 32 * warps; }
  constexpr int block_x() const { return 16 * warps; }
  constexpr int x_bytes() const { return block_x() * head_dim * element_bytes; }
  constexpr int y_bytes() const { return block_y * head_dim * element_bytes; }
  // LSE and delta of each row of a query tile.
  constexpr int stage_bytes() const { return 2 * y_bytes(); }
  constexpr int row_stats_bytes() const { return stages * block_y * 8; }
  constexpr int smem_bytes() const {
    return 2 * x_bytes() + stages * stage_bytes() + row_stats_bytes();
  }
};

// The limit per block on 8.6 and 8.9: code for 8.0 runs there, too.
inline constexpr int kMostSharedBytes = 99 * 1024;

// fp16 and bf16, then fp32, by head dimension.
inline constexpr int kHalfConfigs = 3;
inline constexpr std::array<Config, 6> kConfigs = {{
    {.head_dim = 64, .element_bytes = 2, .warps = 4, .block_y = 64, .stages = 2},
    {.head_dim = 128, .element_bytes = 2, .warps = 4, .block_y = 32, .stages = 2},
    {.head_dim = 256, .element_bytes = 2, .warps = 4, .block_y = 32, .stages = 1},
    {.head_dim = 64, .element_bytes = 4, .warps = 4, .block_y = 16, .stages = 2},
    {.head_dim = 128, .element_bytes = 4, .warps = 4, .block_y = 16, .stages = 1},
    {.head_dim = 256, .element_bytes = 4, .warps = 2, .block_y = 16, .stages = 1},
}};

// Returns the config compiled for a row. With all features, the operations on scores take the registers of
// half of a tile's scores. fp32 has only instances with all features, and its rows already have their tiles.
constexpr Config config_of(int index, Features features) {
  Config config = kConfigs[static_cast<unsigned>(index)];
  if (features == Features::all && index < kHalfConfigs) config.block_y /= 2;
  return config;
}

inline constexpr int kLargestHeadDim = 256;
// A block of the row kernels.
inline constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;

// Returns whether one launch writes both dK and dV.
constexpr bool has_both(const Config& config) {
  return config.head_dim * config.element_bytes <= 256;
}

constexpr bool fits(const Config& config) { return config.smem_bytes() <= kMostSharedBytes; }
static_assert(fits(kConfigs[0]) && fits(kConfigs[1]) && fits(kConfigs[2]) && fits(kConfigs[3]) &&
              fits(kConfigs[4]) && fits(kConfigs[5]));

// Returns the row for a head dimension, or -1 if there is none.
constexpr int config_index(bool fp32, long long head_dim) {
  const int begin = fp32 ? kHalfConfigs : 0;
  const int end = fp32 ? static_cast<int>(kConfigs.size()) : kHalfConfigs;
  for (int i = begin; i < end; ++i) {
    if (head_dim <= kConfigs[static_cast<unsigned>(i)].head_dim) return i;
  }
  return -1;
}

// A joint kernel, for fp16 and bf16: a block owns keys and walks over query tiles.
struct JointConfig {
  int head_dim;  // of Q, K, V and dO, padded
  int warps;
  int sharing;  // warps with the same keys: each has its queries of the scores, and its columns of dK and dV
  int row_tiles;  // of 16 keys, per warp
  int block_q;    // queries per tile
  int step_q;     // queries whose scores are in a warp's registers at once

  constexpr int threads() const { return 32 * warps; }
  constexpr int warp_keys() const { return 16 * row_tiles; }
  constexpr int block_kv() const { return warps / sharing * warp_keys(); }
  constexpr int kv_bytes() const { return block_kv() * head_dim * 2; }
  constexpr int q_bytes() const { return block_q * head_dim * 2; }
  // dS, and also P if other warps need it.
  constexpr int ds_bytes() const { return block_kv() * block_q * 2 * (sharing > 1 ? 2 : 1); }
  constexpr int smem_bytes() const {
    return 2 * kv_bytes() + 2 * q_bytes() + ds_bytes() + block_q * 8 + kPlaceBytes;
  }
  static constexpr int kPlaceBytes = 128;  // size of joint.cuh's JointPlace
  // dQ's product divides warps over its rows, 32 each, and over its columns.
  constexpr int dq_row_warps() const { return block_q / 32; }
  constexpr int dq_columns() const { return head_dim * dq_row_warps() / warps; }
};

// Sorted by head dimension. 128 is there twice: for any GPU, and in code
// for 9.0a. The last is for GPUs that have the shared memory.
inline constexpr std::array<JointConfig, 4> kJointConfigs = {{
    {.head_dim = 64, .warps = 4, .sharing = 1, .row_tiles = 2, .block_q = 128, .step_q = 32},
    {.head_dim = 128, .warps = 4, .sharing = 1, .row_tiles = 1, .block_q = 64, .step_q = 64},
    {.head_dim = 128, .warps = 8, .sharing = 2, .row_tiles = 2, .block_q = 128, .step_q = 32},
    {.head_dim = 256, .warps = 8, .sharing = 4, .row_tiles = 2, .block_q = 64, .step_q = 16},
}};

// With all features, the operations on scores take registers.
constexpr JointConfig joint_config_of(int index, Features features) {
  JointConfig config = kJointConfigs[static_cast<unsigned>(index)];
  if (features == Features::none) return config;
  if (index == 1 || index == 2) {
    config.step_q /= 2;
  } else {  // fewer queries are too few for a product, or not enough: half of a warp's keys
    config.row_tiles /= 2;
    config.sharing = std::max(config.sharing / 2, 1);
  }
  return config;
}

static_assert(kJointConfigs[0].smem_bytes() <= kMostSharedBytes &&
              kJointConfigs[1].smem_bytes() <= kMostSharedBytes &&
              kJointConfigs[3].smem_bytes() <= 163 * 1024);  // on 8.0

// Returns the row for a head dimension, or -1 if there is none. hopper_code:
// the GPU runs code for 9.0a. shared_memory: the limit per block.
constexpr int joint_config_index(long long head_dim, bool hopper_code, long long shared_memory) {
  if (head_dim <= 64) return 0;
  if (head_dim <= 128) return hopper_code ? 2 : 1;
  return head_dim <= kLargestHeadDim && kJointConfigs[3].smem_bytes() <= shared_memory ? 3 : -1;
}

}  // namespace flashcore::cuda::backward_sm80::general

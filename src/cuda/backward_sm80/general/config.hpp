// The resource page of backward_sm80: tiles, registers and shared memory of its compiled kernels.
//
// A block owns a tile of rows, 16 a warp, of queries or of keys, and walks over the tiles of the
// other side. With X the owned rows and Y the others, of queries X1, X2 = Q, dO and Y1, Y2 = K, V,
// and of keys the other way round:
//
//   S = X1 Y1^T | T = X2 Y2^T | P, dS from S and T | first += dS Y1 | second += P Y2
//
// first is dQ of queries, dK of keys; second is dV of keys. Accumulators of S and T are the left
// operands of the next products as they are, so nothing but Y passes through shared memory.
#pragma once

#include <array>

namespace flashcore::cuda::backward_sm80::general {

// What a launch writes. Wide sums leave no registers for dK and dV at once: see has_both().
enum class Output { dq, dk_dv, dk, dv, d_bias };

constexpr bool owns_queries(Output output) {
  return output == Output::dq || output == Output::d_bias;
}
constexpr bool has_first(Output output) {
  return output == Output::dq || output == Output::dk_dv || output == Output::dk;
}
constexpr bool has_second(Output output) { return output == Output::dk_dv || output == Output::dv; }

// What a kernel looks for: nothing but the band, or everything.
enum class Features { none, all };

struct Config {
  int head_dim;  // of Q, K, V and dO, padded
  int element_bytes;
  int warps;
  int block_y;  // rows of a tile of the other side
  int stages;   // tiles of it in shared memory

  constexpr int threads() const { return 32 * warps; }
  constexpr int block_x() const { return 16 * warps; }
  constexpr int x_bytes() const { return block_x() * head_dim * element_bytes; }
  constexpr int y_bytes() const { return block_y * head_dim * element_bytes; }
  // LSE and delta of each row of a tile of queries.
  constexpr int stage_bytes() const { return 2 * y_bytes(); }
  constexpr int notes_bytes() const { return stages * block_y * 8; }
  constexpr int smem_bytes() const {
    return 2 * x_bytes() + stages * stage_bytes() + notes_bytes();
  }
};

// What a block may have on 8.6 and 8.9: code for 8.0 runs there, too.
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

// What is compiled for a row: what happens to scores with all features takes the registers of half
// of a tile's. fp32 has only instances with all features, and their tiles in its rows.
constexpr Config config_of(int index, Features features) {
  Config config = kConfigs[static_cast<unsigned>(index)];
  if (features == Features::all && index < kHalfConfigs) config.block_y /= 2;
  return config;
}

inline constexpr int kLargestHeadDim = 256;

// Whether one launch writes dK and dV.
constexpr bool has_both(const Config& config) {
  return config.head_dim * config.element_bytes <= 256;
}

constexpr bool fits(const Config& config) { return config.smem_bytes() <= kMostSharedBytes; }
static_assert(fits(kConfigs[0]) && fits(kConfigs[1]) && fits(kConfigs[2]) && fits(kConfigs[3]) &&
              fits(kConfigs[4]) && fits(kConfigs[5]));

// The row for a head dimension; -1: there is none.
constexpr int config_index(bool fp32, long long head_dim) {
  const int begin = fp32 ? kHalfConfigs : 0;
  const int end = fp32 ? static_cast<int>(kConfigs.size()) : kHalfConfigs;
  for (int i = begin; i < end; ++i) {
    if (head_dim <= kConfigs[static_cast<unsigned>(i)].head_dim) return i;
  }
  return -1;
}

}  // namespace flashcore::cuda::backward_sm80::general

// The resource page of forward_sm80_throughput: which tile each head dimension gets, and what it
// costs.
//
//   a block: `warps` warps, each `row_groups` groups of 16 query rows, all head dimensions of O in
//            registers; K and V tiles of block_kv keys in a ring of two stages; also Q
//
//   shared memory   | Q | K stage 0 | V stage 0 | K stage 1 | V stage 1 |
//
// Every tile of kConfigs fits the 99 KB that a block may have on sm_86 and sm_89. On GPUs
// with 163 KB per block, kPairedConfig computes head dimensions above 192 without features.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/attention/first_config.hpp"
#include "cuda/forward_sm80/throughput/key_order.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

inline constexpr int kStages = 2;
inline constexpr int kGuardedSliceKeys = 16;          // in the recomputation, see slice_keys
inline constexpr int kSmallSharedMemory = 99 * 1024;  // per block on sm_86 and sm_89
inline constexpr int kPanelBytes = 128;               // rows of a tile are padded to this

// The options that a compiled kernel checks in every tile.
enum class Features {
  none,    // only the band
  scores,  // also softcap, bias and ALiBi
  all,     // also boolean masks, dropout, nonpositive scales, rows that are not 16-byte chunks,
           // an O of another type, splits of the keys
  fp8,     // like `all`, with Q, K and V stored in fp8
  paged,   // like `none`, with keys and values in a cache
  logits,  // like `all`, with the largest score of each head
};

// A kernel made for biases reads them in pieces of four keys.
constexpr KeyOrder key_order(Features features) {
  return features == Features::scores ? KeyOrder::quads : KeyOrder::plain;
}

// A structural type: the single template argument that describes a kernel's geometry.
struct Config {
  int head_dim_qk;  // the largest supported; smaller ones are padded with zeros
  int head_dim_v;
  int warps = 4;
  int row_groups = 1;  // 16-row groups per warp; two share every fragment of K and V
  int block_kv;
  int blocks_per_sm = 2;        // sets the register limit
  bool q_in_registers = false;  // otherwise read from shared memory for every tile
  int element_bytes = 2;        // of Q, K and V: 4 for fp32, which is split when multiplied

  constexpr int threads() const { return 32 * warps; }
  constexpr int copied_rows() const { return threads() / 8; }  // at once: see tile_copy.cuh
  constexpr int warp_rows() const { return 16 * row_groups; }
  constexpr int block_q() const { return warps * warp_rows(); }
  constexpr int stored_qk() const { return padded(head_dim_qk); }
  constexpr int stored_v() const { return padded(head_dim_v); }
  constexpr int q_bytes() const { return element_bytes * block_q() * stored_qk(); }
  constexpr int k_bytes() const { return element_bytes * block_kv * stored_qk(); }
  constexpr int v_bytes() const { return element_bytes * block_kv * stored_v(); }
  constexpr int smem_bytes() const { return q_bytes() + kStages * (k_bytes() + v_bytes()); }

  // Keys per slice: those computed at once if more than scores must be held along with O.
  constexpr int slice_keys(Features features) const {
    if (element_bytes == 4) return 16;  // P is held in two halves
    return features != Features::none && row_groups * head_dim_v >= 192 ? 16 : 32;
  }

  // Returns whether the hot loop has registers left for addresses and bounds that it
  // would otherwise recompute or reload for every tile. They gain 5% where it has.
  constexpr bool spares_registers(Features features) const {
    if (features == Features::scores) return false;
    return accumulators() <= (features == Features::none && head_dim_qk <= 128 ? 160 : 128);
  }

  // Rows per lane (of 2 * row_groups) whose bias waits in registers while scores are computed.
  constexpr int early_bias_slots(int bias_bytes) const {
    return accumulators() <= 128 ? 4 / bias_bytes : 0;
  }

  // fp32 accumulators of S and O per thread: they determine row_groups.
  constexpr int accumulators() const { return row_groups * (block_kv + head_dim_v) / 2; }

 private:
  constexpr int padded(int columns) const {
    const int panel = kPanelBytes / element_bytes;
    return (columns + panel - 1) / panel * panel;
  }
};

// In order of cost, for 16-bit inputs and then for fp32: the first of
// an input type that holds a problem's head dimensions computes it.
inline constexpr std::array kConfigs = {
    Config{.head_dim_qk = 64,
           .head_dim_v = 64,
           .warps = 4,
           .row_groups = 2,
           .block_kv = 64,
           .blocks_per_sm = 2,
           .q_in_registers = true},
    Config{.head_dim_qk = 96, .head_dim_v = 96, .row_groups = 2, .block_kv = 64},
    Config{.head_dim_qk = 128, .head_dim_v = 128, .row_groups = 2, .block_kv = 64},
    Config{.head_dim_qk = 192, .head_dim_v = 128, .row_groups = 2, .block_kv = 32},
    Config{.head_dim_qk = 256, .head_dim_v = 256, .block_kv = 32},
    Config{.head_dim_qk = 64, .head_dim_v = 64, .block_kv = 32, .element_bytes = 4},
    Config{.head_dim_qk = 128, .head_dim_v = 128, .block_kv = 32, .element_bytes = 4},
    Config{.head_dim_qk = 256, .head_dim_v = 128, .warps = 2, .block_kv = 16, .element_bytes = 4},
};
inline constexpr int kHalfConfigs = 5;  // for 16-bit inputs

inline constexpr int kLargestHeadDim = 256;
inline constexpr int kCombineRows = 4;    // per block of the kernel that joins splits
inline constexpr int kFillThreads = 128;  // per block of the kernels that fill largest values

// Maximum number of columns of V and O per launch: fp32 has
// no registers for more, and computes longer rows in parts.
constexpr int launch_columns(int element_bytes) {
  return element_bytes == 4 ? 128 : kLargestHeadDim;
}

// Returns whether a row of kConfigs has kernels with
// Features::scores: the others use their kernels with Features::all.
constexpr bool has_scores_kernel(int config) { return config == 0 || config == 2; }

// Returns the row whose kernel with all features serves a row: head dimension 96 uses
// 128's, whose tile has the same rows and threads, to keep the library small.
constexpr int config_with_all(int config) { return config == 1 ? 2 : config; }
static_assert(kConfigs[1].block_q() == kConfigs[2].block_q() &&
              kConfigs[1].threads() == kConfigs[2].threads());

// Returns the row whose kernel serves a row's head dimensions with Features::fp8 or
// Features::logits: there are few such kernels, as each has all features.
constexpr int config_of_few(int config) {
  if (config == 3) return 4;
  return config_with_all(config);
}
static_assert(kConfigs[3].head_dim_qk <= kConfigs[4].head_dim_qk &&
              kConfigs[3].head_dim_v <= kConfigs[4].head_dim_v);

// Returns an index into kConfigs, or -1 if a head dimension is too large for one launch.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int element_bytes = 2) {
  return attention::first_config(kConfigs, [&](const Config& c) {
    return element_bytes == c.element_bytes && head_dim_qk <= c.head_dim_qk &&
           head_dim_v <= c.head_dim_v;
  });
}

// Long rows on GPUs with 163 KB per block (8.0 and 9.0): pairs of warps
// share 32 rows, see paired.cuh. One stage of K and V, and a tile of P.
struct PairedConfig {
  int head_dim;  // of Q, K and V
  int warps;
  int block_kv;
  int held_q_steps;  // 16-column steps of Q that stay in registers
  int fallback;      // row of kConfigs that recomputes a block, in parts

  // A Config for one warp's registers: its rows, and half of the columns of O.
  constexpr Config warp() const {
    return {.head_dim_qk = head_dim,
            .head_dim_v = head_dim / 2,
            .warps = warps,
            .row_groups = 2,
            .block_kv = block_kv,
            .blocks_per_sm = 1,
            .q_in_registers = false};
  }
  constexpr int threads() const { return 32 * warps; }
  constexpr int block_q() const { return 32 * warps / 2; }
  constexpr int smem_bytes() const {
    return 2 * (block_q() * head_dim + 2 * block_kv * head_dim + block_q() * block_kv);
  }
};
inline constexpr PairedConfig kPairedConfig = {
    .head_dim = 256, .warps = 8, .block_kv = 64, .held_q_steps = 0, .fallback = 4};
inline constexpr int kLargeSharedMemory = 163 * 1024;  // per block on sm_80; sm_90 has more
inline constexpr int kPairedRow = static_cast<int>(kConfigs.size());  // in a Choice

// Returns whether pairs of warps serve row `config` of kConfigs if no features are used.
constexpr bool pairs_serve(int config, int64_t shared_memory_per_block) {
  return config == kPairedConfig.fallback && shared_memory_per_block >= kLargeSharedMemory;
}
static_assert(kPairedConfig.smem_bytes() + 2048 <= kLargeSharedMemory);
static_assert(kPairedConfig.block_q() % kConfigs[kPairedConfig.fallback].block_q() == 0 &&
              kPairedConfig.threads() % kConfigs[kPairedConfig.fallback].threads() == 0);

// Checks what the kernels rely on.
constexpr bool is_sound(const Config& c) {
  return c.head_dim_qk % 16 == 0 && c.head_dim_v % 16 == 0 &&
         c.block_kv % c.slice_keys(Features::all) == 0 &&
         c.block_kv % c.slice_keys(Features::none) == 0 && c.copied_rows() % 8 == 0 &&
         c.block_q() % c.copied_rows() == 0 && c.block_kv % c.copied_rows() == 0 &&
         c.stored_v() <= c.stored_qk() &&  // O is staged in Q's memory
         c.smem_bytes() <= kSmallSharedMemory && c.accumulators() <= 192;
}
static_assert(std::ranges::all_of(kConfigs, is_sound));

}  // namespace flashcore::cuda::forward_sm80::throughput

// The resource page of forward_sm90_throughput: which tile each head dimension gets, and what it
// costs.
//
//   a block: one producer warpgroup (one thread of it copies) and `consumers` warpgroups, each with
//            64 query rows; one to three blocks per SM, which take tile after tile
//
//   shared memory   | Q slots, one tile per consumer each | K ring | V ring | barriers, tasks |
//
// The kernel redistributes registers when it starts: the producer releases what consumers need.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/attention/first_config.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupRows = 64;           // rows of one wgmma
inline constexpr int kWarpRows = 16;                // rows per warp, which the warp stores itself
inline constexpr int kPanelColumns = 64;            // 128 bytes, the widest swizzle
inline constexpr int kSharedMemory = 227 * 1024;    // at most per block
inline constexpr int kSharedMemorySm = 228 * 1024;  // per SM; each block also takes
inline constexpr int kSharedMemoryOwn = 1024;       // this much
inline constexpr int kBarrierBytes = 5 * 1024;      // at most, for barriers, tasks and saved sums

constexpr int whole_panels(int columns) {
  return (columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}

// A structural type: the single template argument that describes a kernel's geometry.
struct Config {
  int head_dim_qk;  // the largest supported; smaller ones are padded with zeros
  int head_dim_v;
  int consumers = 2;
  int block_kv = 128;
  int q_slots = 2;
  int stages = 2;  // of the K ring, and of the V ring
  int blocks_per_sm = 1;
  bool split_softmax = true;  // half of the exponentials overlap the second product
  bool ping_pong = true;      // consumers take turns at starting products
  bool plain = true;          // compiled without features;
  bool features = true;       // with them (they need registers)

  constexpr int threads() const { return kWarpgroupThreads * (consumers + 1); }
  constexpr int block_q() const { return kWarpgroupRows * consumers; }
  // Tiles are whole panels wide; products read only the head dimension's columns.
  constexpr int columns_qk() const { return whole_panels(head_dim_qk); }
  constexpr int columns_v() const { return whole_panels(head_dim_v); }
  constexpr int q_bytes() const { return 2 * kWarpgroupRows * columns_qk(); }  // per consumer
  constexpr int k_bytes() const { return 2 * block_kv * columns_qk(); }
  constexpr int v_bytes() const { return 2 * block_kv * columns_v(); }
  constexpr int tile_bytes() const {
    return q_slots * consumers * q_bytes() + stages * (k_bytes() + v_bytes());
  }

  // Registers per thread, out of those that the launch allocates: see ptx::release_registers.
  constexpr int producer_registers() const {
    return consumers == 3 || blocks_per_sm == 3 ? 32 : 40;
  }
  constexpr int consumer_registers() const {
    if (blocks_per_sm == 3) return 128;
    if (blocks_per_sm == 2) return 216;
    return consumers == 3 ? 160 : 232;
  }

  // Registers that a consumer thread always holds: S, O (fp32) and P (16 bits).
  constexpr int held_registers() const { return block_kv / 2 + head_dim_v / 2 + block_kv / 4; }
};

inline constexpr std::array kConfigs = {
    Config{.head_dim_qk = 64,
           .head_dim_v = 64,
           .consumers = 3,
           .stages = 4,
           .split_softmax = false,
           .features = false},
    Config{.head_dim_qk = 64,
           .head_dim_v = 64,
           .consumers = 1,
           .blocks_per_sm = 2,
           .split_softmax = false,
           .ping_pong = false,
           .features = false},
    Config{.head_dim_qk = 64,
           .head_dim_v = 64,
           .consumers = 1,
           .block_kv = 64,
           .blocks_per_sm = 3,
           .split_softmax = false,
           .ping_pong = false,
           .features = false},
    Config{.head_dim_qk = 64, .head_dim_v = 64, .stages = 4, .plain = false},
    Config{.head_dim_qk = 96, .head_dim_v = 96},
    Config{.head_dim_qk = 128, .head_dim_v = 128},
    Config{.head_dim_qk = 192, .head_dim_v = 128, .q_slots = 1},
    Config{.head_dim_qk = 256, .head_dim_v = 256, .block_kv = 64, .q_slots = 1},
    Config{.head_dim_qk = 80, .head_dim_v = 80, .features = false},
    Config{.head_dim_qk = 112, .head_dim_v = 112, .features = false},
    Config{.head_dim_qk = 160, .head_dim_v = 160, .block_kv = 112, .q_slots = 1},
    Config{.head_dim_qk = 192, .head_dim_v = 192, .block_kv = 112, .q_slots = 1},
};

inline constexpr int kLargestHeadDim = 256;

// The rows in order of cost: the first that holds a problem's head dimensions computes it. A row's index
// is in its instances' names, so new rows come last in kConfigs.
inline constexpr std::array kByCost = {0, 1, 2, 3, 8, 4, 9, 5, 6, 10, 11, 7};

constexpr bool holds(const Config& c, int64_t head_dim_qk, int64_t head_dim_v, bool features) {
  return head_dim_qk <= c.head_dim_qk && head_dim_v <= c.head_dim_v &&
         (features ? c.features : c.plain);
}

// Returns an index into kConfigs, or -1 if a head dimension is too large.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, bool features) {
  for (const int row : kByCost) {
    if (holds(kConfigs[static_cast<std::size_t>(row)], head_dim_qk, head_dim_v, features))
      return row;
  }
  return -1;
}

// The tiles for options of pairs: biases, masks, ALiBi. Each consumer also has a slot for its rows of a tile of
// biases.
constexpr Config for_options(Config config, int q_slots) {
  config.q_slots = q_slots;
  config.plain = config.features = false;
  return config;
}
inline constexpr std::array kOptionConfigs = {
    for_options(kConfigs[3], 2), for_options(kConfigs[5], 1), for_options(kConfigs[7], 1)};

// Returns an index into kOptionConfigs, or -1 if a head dimension is too large.
constexpr int choose_option_config(int64_t head_dim_qk, int64_t head_dim_v) {
  return attention::first_config(kOptionConfigs, [&](const Config& c) {
    return head_dim_qk <= c.head_dim_qk && head_dim_v <= c.head_dim_v;
  });
}

// Bytes of a consumer's rows of a tile of biases of 16 bits, and of a block with options.
constexpr int bias_bytes(const Config& c) { return 2 * kWarpgroupRows * c.block_kv; }
constexpr int option_tile_bytes(const Config& c) {
  return c.tile_bytes() + c.consumers * bias_bytes(c);
}

// Rows of kConfigs that are also compiled for paged keys and values,
// in order of cost: all of them without features, some with features.
struct PagedConfig {
  int row;
  bool features;
};
inline constexpr std::array kPagedConfigs = {
    PagedConfig{.row = 3, .features = false}, PagedConfig{.row = 5, .features = true},
    PagedConfig{.row = 6, .features = false}, PagedConfig{.row = 7, .features = true}};

// Rows of a page per copy: a whole tile's, or a power of two that divides the page size. 0
// if copies would have fewer than kLeastBoxRows rows: a tile would need too many of them.
inline constexpr int kLeastBoxRows = 8;
constexpr int box_rows(int64_t page_size, const Config& config) {
  const int64_t divides = page_size & -page_size;
  const auto rows = static_cast<int>(divides < config.block_kv ? divides : config.block_kv);
  return rows < kLeastBoxRows ? 0 : rows;
}

// Like choose_config, for paged keys and values.
constexpr int choose_paged_config(int64_t head_dim_qk, int64_t head_dim_v, bool features) {
  for (const PagedConfig& paged : kPagedConfigs) {
    const Config& c = kConfigs[static_cast<std::size_t>(paged.row)];
    if (head_dim_qk <= c.head_dim_qk && head_dim_v <= c.head_dim_v &&
        (paged.features || !features)) {
      return paged.row;
    }
  }
  return -1;
}

// Checks what the kernels rely on. Three consumers with two stages hung on a GPU under causal masks.
constexpr bool is_sound(const Config& c) {
  const int threads = c.threads() * c.blocks_per_sm;
  const int allocated = 65536 / threads / 8 * 8 * c.threads();
  const int wanted =
      kWarpgroupThreads * (c.producer_registers() + c.consumers * c.consumer_registers());
  return c.head_dim_qk % 16 == 0 && c.head_dim_v % 16 == 0 && c.block_kv % 16 == 0 &&
         c.q_slots >= 1 && (c.stages & (c.stages - 1)) == 0 && (c.consumers < 3 || c.stages >= 4) &&
         c.tile_bytes() + kBarrierBytes <= kSharedMemory &&
         c.blocks_per_sm * (c.tile_bytes() + kBarrierBytes + kSharedMemoryOwn) <= kSharedMemorySm &&
         wanted <= allocated && c.held_registers() + 24 <= c.consumer_registers();
}
static_assert(std::ranges::all_of(kConfigs, is_sound));
static_assert(std::ranges::all_of(kOptionConfigs, [](const Config& c) {
  return is_sound(c) && option_tile_bytes(c) + kBarrierBytes <= kSharedMemory;
}));
static_assert(kByCost.size() == kConfigs.size());

}  // namespace flashcore::cuda::forward_sm90::throughput

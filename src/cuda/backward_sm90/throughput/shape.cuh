// The compile-time geometry of one instance, and its block's shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/backward_sm90/common/bias_element.cuh"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/backward_sm90/throughput/params.hpp"
#include "cuda/backward_sm90/throughput/schedule.hpp"
#include "cuda/backward_sm90/throughput/task.hpp"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

template <int kConfigIndex, class Element_, bool kDeterministic_, bool kOptions_ = false,
          bool kPairs_ = false>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  using Element = Element_;
  static constexpr bool kDeterministic = kDeterministic_;  // deterministic additions to dQ
  static constexpr bool kOptions = kOptions_;
  static constexpr bool kPairs = kPairs_;  // only with options
  // A producer that describes more of a step has no registers for its task, which is then shared.
  static constexpr bool kSharesTask = kDeterministic;
  // Scores, if there is a softcap; with pairs there is none.
  static constexpr bool kCaps = kOptions && kConfig.caps && !kPairs;
  using KernelParams =
      std::conditional_t<kPairs, PairParams, std::conditional_t<kOptions, OptionParams, Params>>;
  using OwnTask = std::conditional_t<kOptions, EntryTask, Task>;
  static constexpr int kBlockQ = kConfig.block_q;
  static constexpr uint32_t kOperandBits = ~0U;  // address bits in an operand's descriptor

  using KTile = tile::SmemTile<kBlockKeys, kConfig.head_dim, 2>;  // and of V
  using QTile = tile::SmemTile<kBlockQ, kConfig.head_dim, 2>;     // and of dO
  using DsTile = tile::SmemTile<kBlockQ, kBlockKeys, 2>;          // a panel per consumer
  static constexpr uint32_t kRowStatsBytes = kConfig.row_stats_bytes();
  static constexpr uint32_t kStagingBytes = kConfig.bulk_products * kSumsBytes;  // per warp

  static constexpr int kScoreProducts = kBlockQ / 8;         // accumulators of m16n8
  static constexpr int kQuerySteps = kBlockQ / 16;           // k16 of dV and dK
  static constexpr int kKeySteps = kBlockKeys / 16;          // k16 of dQ
  static constexpr int kDimSteps = kConfig.head_dim / 16;    // k16 of S and dP
  static constexpr int kDimProducts = kConfig.head_dim / 8;  // accumulators of dK and dV
  static constexpr int kDqProducts = kConfig.dq_products();
  // True if consumers add some products of dQ themselves.
  static constexpr bool kAddsItself = kConfig.bulk_products < kDqProducts;

  template <class SharedTask>
  struct SharedOf {
    alignas(tile::kTileAlignment) unsigned char k[KTile::kBytes];
    unsigned char v[KTile::kBytes];
    unsigned char q[kStages][QTile::kBytes];
    unsigned char d_o[kStages][QTile::kBytes];
    unsigned char ds[DsTile::kBytes];
    unsigned char staging[kConsumerWarps][kStagingBytes];
    alignas(16) float row_stats[kStages][2][kBlockQ];
    uint64_t kv_full;
    uint64_t q_full[kStages], q_empty[kStages], o_full[kStages], o_empty[kStages];
    uint64_t ds_full, ds_empty;
    // Per consumer, if additions are deterministic: the turn has come (if consumers add
    // some sums themselves), all warps have staged their sums, and staging is free again.
    // For the last tile: the other tiles' sums are staged, and rows of dQ are stored.
    uint64_t turn_here[kConsumers], staged[kConsumers], staging_free[kConsumers];
    uint64_t sums_here[kConsumers], stored[kConsumers];
    uint64_t described[kSteps];  // for the adder
    Step step[kSteps];
    uint32_t tile;
    SharedTask task;
  };
  using Shared = SharedOf<std::conditional_t<kSharesTask, OwnTask, NoRows>>;
  // Byte offsets: addresses in shared memory are 32-bit sums.
  static constexpr uint32_t kK = offsetof(Shared, k), kV = offsetof(Shared, v),
                            kQ = offsetof(Shared, q), kDo = offsetof(Shared, d_o),
                            kDs = offsetof(Shared, ds), kStaging = offsetof(Shared, staging),
                            kRowStats = offsetof(Shared, row_stats);
  static constexpr uint32_t kKvFull = offsetof(Shared, kv_full), kQFull = offsetof(Shared, q_full),
                            kQEmpty = offsetof(Shared, q_empty), kOFull = offsetof(Shared, o_full),
                            kOEmpty = offsetof(Shared, o_empty),
                            kDsFull = offsetof(Shared, ds_full),
                            kDsEmpty = offsetof(Shared, ds_empty),
                            kTurnHere = offsetof(Shared, turn_here),
                            kSumsHere = offsetof(Shared, sums_here),
                            kStaged = offsetof(Shared, staged), kStored = offsetof(Shared, stored),
                            kStagingFree = offsetof(Shared, staging_free);
  static_assert(sizeof(Shared) <= static_cast<std::size_t>(kConfig.shared_bytes()));
  // With pairs, behind it: a tile of the bias, as dS has it if it is of 16 bits, words of the mask's bits as their
  // launch packs them, 128 keys for each 32 queries, PairTerms, and the barriers of both.
  static constexpr uint32_t kBias =
      (sizeof(Shared) + kPairAlignment - 1) / kPairAlignment * kPairAlignment;
  static constexpr uint32_t kBits = kBias + kConfig.bias_bytes();
  static constexpr uint32_t kPairTerms = kBits + kConfig.bits_bytes();
  static constexpr uint32_t kPairFull = kPairTerms + sizeof(PairTerms), kPairEmpty = kPairFull + 8;
  static_assert(!kPairs || (kPairEmpty + 8 <= static_cast<uint32_t>(kConfig.pair_shared_bytes()) &&
                            kPairEmpty + 8 - kPairTerms <= kPairOther));
  __device__ static PairTerms& pair_terms() {
    return *reinterpret_cast<PairTerms*>(ptx::dynamic_shared() + kPairTerms);
  }

  // Returns where the sums of consumer warp `warp` for a block begin.
  __device__ __forceinline__ static int64_t sums_of(int block, uint32_t warp) {
    return int64_t{block} * kConfig.block_sums() + warp * (kDqProducts * 32 * kSumsFloats);
  }

  __device__ static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::dynamic_shared()); }
};

template <class S>
__device__ __forceinline__ Task find_task(const Params& p, uint32_t index) requires(!S::kOptions) {
  return make_task(p, index, S::kBlockQ);
}

// If starts of a packed batch decrease, there is nothing to do.
template <class S>
__device__ __forceinline__ EntryTask find_task(const OptionParams& p,
                                               uint32_t index) requires(S::kOptions) {
  const bool starts_fall = is_packed(p) && *p.starts_fall != 0;
  EntryTask task = p.tasks[index];
  if (starts_fall) task.steps = 0;
  return task;
}

// The sequence of a tile of keys.
__device__ __forceinline__ int entry_of_tile(const PairParams& p, uint32_t index) {
  const KeyTile place = key_tile(p.order, index);
  return key_block(p, place.batch_head, place.tile, kBlockKeys).entry;
}
__device__ __forceinline__ PairTerms find_pair_terms(const PairParams& p, uint32_t index) {
  const int entry = entry_of_tile(p, index);
  return {.offset = attention::find_entry(p, entry).offset,
          .entry = entry,
          .key = p.pairs.dropout ? dropout_key_of(p.pairs) : PhiloxKey{}};
}

// Returns whether nothing is stored: a packed batch has more tile slots than its sequences have tiles.
__device__ __forceinline__ bool is_without_rows(const OptionParams& p, const EntryTask& task) {
  return is_packed(p) && (task.tile < 0 || task.tile * kBlockKeys >= task.rows.limits.len_kv);
}

// The task of this block; as a reference to shared memory, it takes no registers.
template <class S>
__device__ __forceinline__ decltype(auto) own_task(const typename S::KernelParams& p,
                                                   uint32_t index) {
  if constexpr (S::kSharesTask) {
    return static_cast<const typename S::OwnTask&>(S::shared().task);
  } else {
    return find_task<S>(p, index);
  }
}

// Iterates over the query blocks of a task.
template <class S>
struct Walk {
  using Task = typename S::OwnTask;
  // True if a block has only a part of the steps (split/shape.cuh).
  static constexpr bool kHasPart = requires(const Task& one) { one.splits; };
  const Params& p;
  const Task& task;
  int head, block;  // of queries

  __device__ __forceinline__ Walk(const Params& params, const Task& of) requires(kHasPart)
      : p(params), task(of), head(of.kv_head * params.group), block(of.range.end - 1 - of.rank) {
    find_head();
  }
  __device__ __forceinline__ Walk(const Params& params, const Task& of) requires(!kHasPart)
      : p(params),
        task(of),
        head(of.kv_head * params.group),
        block(S::kDeterministic ? of.range.end - 1 : of.range.begin) {}

  // Deterministic: blocks go from last to first, so that under a causal mask,
  // where the first tile has the most of them, all tiles begin at the same one.
  __device__ __forceinline__ void advance() {
    if constexpr (kHasPart) {
      block -= task.splits;
      return find_head();
    }
    if (S::kDeterministic) {
      if (--block >= task.range.begin) return;
      block = task.range.end - 1;
    } else {
      if (++block < task.range.end) return;
      block = task.range.begin;
    }
    ++head;
  }
  // Advances to the head of the step.
  __device__ __forceinline__ void find_head() {
    for (; block < task.range.begin; ++head) block += task.range.size();
  }
  // Returns the block's index among the blocks of all heads.
  __device__ __forceinline__ int number() const {
    return (task.batch * p.heads_q + head) * p.q_blocks + block + rows_of(p, task).first_block;
  }
  // The number of tiles that add to the block before this one, and whether this is the last.
  struct Turn {
    int number;
    bool is_last;
  };
  __device__ __forceinline__ Turn turn() const {
    const TileRange tiles =
        key_tiles(rows_of(p, task).limits, rows_of(p, task).len_q, block, S::kBlockQ);
    return {task.tile - tiles.begin, task.tile + 1 == tiles.end};
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput

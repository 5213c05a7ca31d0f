// The producers of dBias' kernel, a thread and a warp: one finds steps and copies their tiles, the other copies tiles of
// the bias. Both go on to the next tile of dBias while consumers store one.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/bias/shape.cuh"
#include "cuda/backward_sm90/throughput/bias/walk.hpp"
#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/prefetch.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

template <class S>
struct BiasProducer {
  using Tile = typename S::Tile;
  static constexpr int kBoxQueries = S::kConfig.block_q, kBoxes = kBiasTile / kBoxQueries;

  typename S::Shared& smem;
  const Maps& maps;
  const BiasParams& p;
  uint32_t shared;
  BiasSlot slot = {};
  int kept = 0;  // the step's place among those that are kept

  __device__ __forceinline__ uint32_t full() const { return shared + S::kFull + 8 * slot.at; }
  __device__ __forceinline__ void acquire() const {
    ptx::mbarrier_wait(shared + S::kEmpty + 8 * slot.at, slot.parity ^ 1);
  }
  // Copies rows of a key's matrix, and after them rows of a query's, to the slot.
  __device__ __forceinline__ void load(const CUtensorMap& of_keys, const CUtensorMap& of_queries,
                                       const EntryRows& rows, const PairTile& tile) const {
    const uint32_t to = shared + S::kRing + slot.at * (2 * Tile::kBytes);
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      const uint32_t at = to + panel * Tile::kPanelBytes;
      ptx::tma_load_4d(at, &of_keys, full(), panel * kPanelColumns, rows.kv_row + tile.key,
                       tile.head / p.group, rows.batch);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const int first = box * kBoxQueries;
        ptx::tma_load_4d(at + Tile::kBytes + first * Tile::kPanelRowBytes, &of_queries, full(),
                         panel * kPanelColumns, rows.q_row + tile.query + first, tile.head,
                         rows.batch);
      }
    }
  }
  // A block past the last one has no queries; the last one's numbers take its place.
  __device__ __forceinline__ void load_row_stats(const EntryRows& rows,
                                                 const PairTile& tile) const {
    constexpr uint32_t kBytes = S::kConfig.row_stats_bytes();
    const int64_t head = (int64_t{rows.batch} * p.heads_q + tile.head) * p.q_blocks;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int block = min(rows.first_block + tile.query / kBoxQueries + box, p.q_blocks - 1);
      ptx::bulk_load(shared + S::kRowStats + (kept * kBoxes + box) * kBytes,
                     p.row_stats + (head + block) * (2 * kBoxQueries), kBytes, full());
    }
  }

  // A step without pairs has no tiles, but their places.
  __device__ __forceinline__ void produce(const BiasStep& step, const EntryRows& rows) {
    acquire();
    smem.step[kept] = step;
    const bool loads = step.has_pairs != 0;
    ptx::mbarrier_arrive_expect(full(), loads ? 2 * Tile::kBytes + 8 * kBiasTile : 0);
    if (loads) {
      load(maps.k, maps.q, rows, step.tile);
      load_row_stats(rows, step.tile);
    }
    slot.advance(S::slots(p.pairs));
    if (step.item < 0) return;
    acquire();
    ptx::mbarrier_arrive_expect(full(), loads ? 2 * Tile::kBytes : 0);
    if (loads) load(maps.v, maps.d_o, rows, step.tile);
    slot.advance(S::slots(p.pairs));
    if (++kept == S::kKept) kept = 0;
  }

  // Where the starts of a packed batch decrease, gradients are 0.
  __device__ __forceinline__ bool ends(const BiasWalk<BiasParams>& walk) const {
    return walk.has_ended() || (is_packed(p) && *p.starts_fall != 0);
  }

  __device__ __forceinline__ void run() {
    for (uint32_t item = ptx::block_index(); item < p.items; item += gridDim.x) {
      BiasWalk walk(p, bias_item(p, item));
      bool is_first = true;
      do {
        BiasStep step{.item = static_cast<int32_t>(item), .is_first = is_first ? 1 : 0};
        EntryRows rows{};
        if (!ends(walk)) {
          rows = entry_rows(p, walk.batch, S::kConfig.block_q);
          step.tile = {.batch = walk.batch,
                       .head = walk.head,
                       .query = walk.q_tile * kBiasTile,
                       .key = walk.k_tile * kBiasTile,
                       .last_query = rows.len_q - 1,
                       .last_key = rows.limits.len_kv - 1,
                       .offset = attention::find_entry(p, walk.batch).offset};
          step.limits = rows.limits;
          step.has_pairs = 1;
          step.is_masked = walk.range.needs_mask(walk.k_tile) ||
                                   step.tile.query + kBiasTile > rows.len_q ||
                                   step.tile.key + kBiasTile > rows.limits.len_kv
                               ? 1
                               : 0;
          walk.advance();
        }
        step.is_last = ends(walk) ? 1 : 0;
        produce(step, rows);
        is_first = false;
      } while (!ends(walk));
    }
    produce({.item = -1}, {});
  }
};

// A warp: a tile of dBias has one of the bias, whatever it sums, if tiles of the bias are copied. The next one comes to
// L2 meanwhile.
template <class S>
struct BiasTileLoader {
  const BiasParams& p;
  uint32_t shared;

  __device__ __forceinline__ void load(const BiasItem& item) const {
    constexpr int kBoxQueries = S::kConfig.block_q;
    const PairMatrix& bias = p.pairs.bias;
    const int keys = 128 / p.pairs.bias_element_bytes();  // of a panel
    uint32_t to = shared + S::bias_at(p.pairs);
    for (int key = 0; key < kBlockKeys; key += keys) {
      for (int query = 0; query < kBiasTile; query += kBoxQueries, to += kBoxQueries * 128) {
        ptx::tma_load_4d(to, &p.pairs.bias_map, shared + S::kBiasFull,
                         item.k_tile * kBiasTile + key, item.q_tile * kBiasTile + query,
                         bias.head == 0 ? 0 : item.head, bias.batch == 0 ? 0 : item.batch);
      }
    }
  }
  __device__ __forceinline__ void prefetch(const BiasItem& item, int lane) const {
    const PairMatrix& bias = p.pairs.bias;
    const int bytes = p.pairs.bias_element_bytes(), lines = kBlockKeys * bytes / 128;  // of a row
    const int64_t of_head = item.batch * bias.batch + item.head * bias.head;
    for (int i = lane; i < kBiasTile * lines; i += kWarpThreads) {
      const int query = min(item.q_tile * kBiasTile + i / lines, p.seqlen_q - 1);
      const int key = min(item.k_tile * kBiasTile + i % lines * (128 / bytes), p.seqlen_kv - 1);
      ptx::prefetch_l2(static_cast<const unsigned char*>(bias.data) +
                       (of_head + query * bias.query + key) * bytes);
    }
  }
  __device__ __forceinline__ bool has_pairs(const BiasItem& item) const {
    return !BiasWalk(p, item).has_ended();
  }

  __device__ __forceinline__ void run(int lane) const {
    uint32_t parity = 1;
    for (uint32_t item = ptx::block_index(); item < p.items; item += gridDim.x) {
      if (lane == 0) {
        ptx::mbarrier_wait(shared + S::kBiasEmpty, parity);
        p.marks[item] = 0;
        const BiasItem place = bias_item(p, item);
        const bool loads = p.pairs.bias_tiles && has_pairs(place);
        ptx::mbarrier_arrive_expect(
            shared + S::kBiasFull,
            loads ? kBiasTile * kBlockKeys * p.pairs.bias_element_bytes() : 0);
        if (loads) load(place);
      }
      __syncwarp();
      parity ^= 1;
      const uint32_t next = item + gridDim.x;
      if (!p.pairs.bias_tiles || next >= p.items) continue;
      const BiasItem place = bias_item(p, next);
      if (has_pairs(place)) prefetch(place, lane);
    }
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput

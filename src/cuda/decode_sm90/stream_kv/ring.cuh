// A warp's ring: the KV tiles that it copies, ahead of the tiles that it computes.
//
// A stage is full when its barrier's phase completes: the bytes of its boxes have
// arrived (one lane requests them) or, row by row, every lane's copies have. It is
// free when the warp has synchronised after its last read. Pages of keys are looked up a
// tile ahead of the copies and used only there, so that nothing waits for a page table.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/decode/inputs.cuh"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/walk.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

template <Config kConfig>
using KvTile = tile::SmemTile<kConfig.tile_keys, kConfig.head_dim, kConfig.kv_bytes>;

// Returns the first key of a warp's first tile. Boxes of pages begin
// at multiples of their rows; keys before the unit's are masked.
template <Config kConfig>
__device__ __forceinline__ int first_key(const Params& p, const Unit& unit, int warp) {
  const int row = unit.at.entry.kv_row + unit.begin;
  return unit.begin - (row & (p.key_alignment - 1)) + warp * kConfig.tile_keys;
}

// The distance between a warp's tiles, in keys.
template <Config kConfig>
inline constexpr int kStep = kWarps* kConfig.tile_keys;

// A warp's view of its stages.
template <Config kConfig>
struct Stages {
  unsigned char* tiles;
  float* scales;  // of K and of V, per stage
  uint32_t barriers;

  __device__ unsigned char* k_tile(int stage) const {
    return tiles + stage * 2 * kConfig.tile_bytes();
  }
  __device__ unsigned char* v_tile(int stage) const { return k_tile(stage) + kConfig.tile_bytes(); }
  __device__ float* k_scales(int stage) const { return scales + 2 * stage * kConfig.tile_keys; }
  __device__ float* v_scales(int stage) const { return k_scales(stage) + kConfig.tile_keys; }
  __device__ uint32_t barrier(int stage) const { return barriers + 8 * stage; }

  // Called by one warp; the block must synchronise before other copies than this warp's arrive.
  __device__ void begin(const Params& p, int lane) const {
    if (lane < kConfig.stages) ptx::mbarrier_init(barrier(lane), p.boxes > 0 ? 1 : 32);
    ptx::mbarrier_init_fence();
  }
};

// Copies a warp's tiles, unit after unit, into free stages.
template <Config kConfig>
class Producer {
  using Tile = KvTile<kConfig>;
  static constexpr int kTileKeys = kConfig.tile_keys;
  static constexpr bool kFp8 = kConfig.kv_bytes == 1;

 public:
  __device__ Producer(const Params& p, const Maps& maps, const Stages<kConfig>& stages,
                      WorkList& list, int warp, int lane)
      : p_(p), maps_(maps), stages_(stages), list_(list), warp_(warp), lane_(lane) {}

  // All lanes have read the oldest filled stage.
  __device__ void release() { ++free_; }

  // Starts the first unit's first tiles if they are boxes. Otherwise fill() does: its
  // branches around code that boxes do not need would take longer than everything here.
  __device__ void begin() {
    if (p_.boxes == 0) return;
    enter(0);
#pragma unroll 1
    while (free_ > 0 && key_ < end_) {
      find();
      load_boxes();
      advance();
    }
    find();
  }

  // Starts copies until no stage is free, or until the tiles of all units up to `last` are in flight.
  __device__ void fill(int last) {
#pragma unroll 1
    while (free_ > 0) {
      if (key_ >= end_) [[unlikely]] {
        if (unit_ == last) return;
        enter(unit_ + 1);
        find();
        continue;
      }
      load();
      advance();
      find();
    }
  }

 private:
  __device__ const Unit& unit() const { return list_.unit(unit_); }

  __device__ void enter(int n) {
    unit_ = n;
    key_ = first_key<kConfig>(p_, unit(), warp_);
    end_ = unit().end;
    kv_row_ = unit().at.entry.kv_row;
    batch_ = unit().batch;
    kv_head_ = unit().kv_head;
  }

  __device__ void advance() {
    stage_ = stage_ + 1 < kConfig.stages ? stage_ + 1 : 0;
    --free_;
    key_ += kStep<kConfig>;
  }

  // The scales are read after the lanes have synchronised: a tile of boxes is used an
  // iteration or a round later, and for other tiles, every lane arrives at the barrier.
  __device__ void store_scales() const {
    if constexpr (kFp8) {
      if (p_.scaled && lane_ < kTileKeys) {
        stages_.k_scales(stage_)[lane_] = place_.k_scale;
        stages_.v_scales(stage_)[lane_] = place_.v_scale;
      }
    }
  }

  __device__ void load_boxes() {
    settle();
    store_scales();
    if (lane_ == 0) copy_boxes(stage_);
  }

  __device__ void load() {
    if (p_.boxes > 0) [[likely]] {
      load_boxes();
      return;
    }
    settle();
    store_scales();
    if (p_.chunks) {
      copy_rows(stage_);
      ptx::cp_async_arrive(stages_.barrier(stage_));
    } else {
      copy_elements(stage_);
      ptx::mbarrier_arrive(stages_.barrier(stage_));
    }
  }

  // Looks up the place of this lane's key of the next tile. Keys
  // past the unit's are not looked up, except the first of a box.
  __device__ void find() {
    const int key = key_ + lane_ % kTileKeys;
    place_ = {0, 0, 0, 0};
    if (key >= end_) return;
    if (lists_pages()) {
      const attention::KvCacheParams& cache = p_.cache;
      const int row = kv_row_ + key;
      const auto page = static_cast<int>(cache.by_page_size.divide(static_cast<uint32_t>(row)));
      place_.lead = __ldg(cache.pages + unit().at.in_table + page * cache.table_page);
      place_.row = row - page * cache.page_size;
      return;
    }
    attention::CachedEntry at = unit().at;
    at.entry.kv_row = kv_row_;
    place_ = attention::decode::find_place<kFp8>(p_, at, batch_, kv_head_, key);
  }

  // Returns whether places have numbers of pages as stored. Scales of fp8 need them before the copy.
  __device__ bool lists_pages() const { return !kFp8 && p_.cache.pages != nullptr; }

  // Waits for the page, and clamps its number. One out of range is reported.
  __device__ void settle() {
    if (!lists_pages()) return;
    const int stored = place_.lead;
    place_.lead = attention::clamped(stored, 0, p_.cache.num_pages - 1);
    if (place_.lead != stored && p_.cache.page_status != nullptr) {
      atomicExch(p_.cache.page_status, 1);
    }
  }

  __device__ void copy_boxes(int stage) const {
    const uint32_t barrier = stages_.barrier(stage);
    ptx::mbarrier_arrive_expect(barrier, static_cast<uint32_t>(2 * p_.boxes * p_.box_bytes));
    const int lead = p_.cu_seqlens_kv.data != nullptr ? 0 : place_.lead;
    copy_tile(maps_.k, ptx::shared_address(stages_.k_tile(stage)), barrier, lead);
    copy_tile(maps_.v, ptx::shared_address(stages_.v_tile(stage)), barrier, lead);
  }

  __device__ void copy_tile(const CUtensorMap& map, uint32_t to, uint32_t barrier, int lead) const {
#pragma unroll 1
    for (int i = 0; i < p_.boxes; ++i) {
      ptx::tma_load_5d(to + static_cast<uint32_t>(i * p_.box_bytes), &map, barrier,
                       i * p_.box_columns, place_.row, 0, kv_head_, lead);
    }
  }

  __device__ void copy_rows(int stage) const {
    constexpr int kRowsAtOnce = 32 / Tile::kRowChunks;
    const int chunk = lane_ % Tile::kRowChunks, lane_row = lane_ / Tile::kRowChunks;
    const int column = chunk * (16 / kConfig.kv_bytes);
    const bool in_k = column < p_.head_dim_qk, in_v = column < p_.head_dim_v;
#pragma unroll
    for (int i = 0; i < kTileKeys; i += kRowsAtOnce) {
      const int row = i + lane_row;
      const int lead = __shfl_sync(0xffffffffU, place_.lead, row);
      const int at = __shfl_sync(0xffffffffU, place_.row, row);
      const bool exists = key_ + row < end_;
      unsigned char* const to = stages_.k_tile(stage) + Tile::chunk_offset(row, chunk);
      copy_chunk(to, p_.k.data, element_at(p_.k, lead, at) + column, exists && in_k);
      copy_chunk(to + kConfig.tile_bytes(), p_.v.data, element_at(p_.v, lead, at) + column,
                 exists && in_v);
    }
  }

  __device__ int64_t element_at(const attention::RowMatrix& x, int lead, int row) const {
    return lead * x.batch + kv_head_ * x.head + row * x.row;
  }

  // Copies 16 bytes from element `at` on, or zeros.
  __device__ void copy_chunk(unsigned char* to, const void* data, int64_t at, bool exists) const {
    const auto* const bytes = static_cast<const unsigned char*>(data);
    ptx::cp_async_16(to, exists ? bytes + at * kConfig.kv_bytes : bytes, exists);
  }

  // Copies rows that are not aligned chunks, by ordinary loads.
  __device__ void copy_elements(int stage) const {
#pragma unroll 1
    for (int row = 0; row < kTileKeys; ++row) {
      const int lead = __shfl_sync(0xffffffffU, place_.lead, row);
      const int at = __shfl_sync(0xffffffffU, place_.row, row);
      const bool exists = key_ + row < end_;
#pragma unroll 1
      for (int column = lane_; column < kConfig.head_dim; column += 32) {
        const uint32_t to = Tile::offset(row, column);
        copy_element(stages_.k_tile(stage) + to, p_.k.data, element_at(p_.k, lead, at) + column,
                     exists && column < p_.head_dim_qk);
        copy_element(stages_.v_tile(stage) + to, p_.v.data, element_at(p_.v, lead, at) + column,
                     exists && column < p_.head_dim_v);
      }
    }
  }

  __device__ void copy_element(unsigned char* to, const void* data, int64_t at, bool exists) const {
    using Stored = std::conditional_t<kFp8, uint8_t, uint16_t>;
    *reinterpret_cast<Stored*>(to) =
        exists ? __ldg(static_cast<const Stored*>(data) + at) : Stored{0};
  }

  const Params& p_;
  const Maps& maps_;
  const Stages<kConfig>& stages_;
  WorkList& list_;
  int unit_ = -1;          // unit of the next tile
  int key_ = 0, end_ = 0;  // of the tile; of the unit
  int kv_row_, batch_, kv_head_;
  int stage_ = 0, free_ = kConfig.stages;
  attention::decode::KeyPlace place_{};
  int warp_, lane_;
};

}  // namespace flashcore::cuda::decode_sm90::stream_kv

// A warp's ring: the tiles of keys that it copies, ahead of those that it computes with.
//
// A stage is full when its barrier's phase completes: the bytes of its boxes have come (one lane
// asks for them), or, row by row, every lane's copies have. It is free when the warp has met after
// its last read. Places of keys are looked up a tile ahead of the copies, so that nobody waits for
// a page table.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/decode/inputs.cuh"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/walk.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/mbarrier_wait.cuh"
#include "cuda/ptx/tma_panels.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

template <Config kConfig>
using KvTile = tile::SmemTile<kConfig.tile_keys, kConfig.head_dim, kConfig.kv_bytes>;

// The first key of a warp's first tile. Boxes of pages begin at multiples of their rows; keys before
// the unit's are masked.
template <Config kConfig>
__device__ __forceinline__ int first_key(const Params& p, const Unit& unit, int warp) {
  const int row = unit.at.entry.kv_row + unit.begin;
  return unit.begin - (row & (p.key_alignment - 1)) + warp * kConfig.tile_keys;
}

// The distance of a warp's tiles.
template <Config kConfig>
inline constexpr int kStep = kWarps* kConfig.tile_keys;

// What a warp reads of its stages.
template <Config kConfig>
struct Stages {
  unsigned char* tiles;
  float* scales;  // of K and of V, by stage
  uint32_t barriers;

  __device__ unsigned char* k_tile(int stage) const {
    return tiles + stage * 2 * kConfig.tile_bytes();
  }
  __device__ unsigned char* v_tile(int stage) const { return k_tile(stage) + kConfig.tile_bytes(); }
  __device__ float* k_scales(int stage) const { return scales + 2 * stage * kConfig.tile_keys; }
  __device__ float* v_scales(int stage) const { return k_scales(stage) + kConfig.tile_keys; }
  __device__ uint32_t barrier(int stage) const { return barriers + 8 * stage; }

  // One warp; all threads of the block meet before others than its lanes' copies arrive.
  __device__ void begin(const Params& p, int lane) const {
    if (lane < kConfig.stages) ptx::mbarrier_init(barrier(lane), p.boxes > 0 ? 1 : 32);
    ptx::mbarrier_init_fence();
  }
};

// Copies a warp's tiles, unit after unit.
template <Config kConfig>
class Producer {
  using Tile = KvTile<kConfig>;
  static constexpr int kTileKeys = kConfig.tile_keys;
  static constexpr bool kFp8 = kConfig.kv_bytes == 1;

 public:
  // `first`: the unit that `walk` took last; there is one.
  __device__ Producer(const Params& p, const Maps& maps, const Stages<kConfig>& stages,
                      const Walk<kConfig.rows()>& walk, const Unit& first, int warp, int lane)
      : p_(p), maps_(maps), stages_(stages), walk_(walk), unit_(first), warp_(warp), lane_(lane) {
    key_ = first_key<kConfig>(p_, unit_, warp_);
    find();
  }

  // Starts the copies of the next tile, if there is one. All lanes have read the stage.
  __device__ void load(int stage) {
    if (done_) return;
    if constexpr (kFp8) {
      if (p_.scaled && lane_ < kTileKeys) {
        stages_.k_scales(stage)[lane_] = place_.k_scale;
        stages_.v_scales(stage)[lane_] = place_.v_scale;
      }
    }
    if (p_.boxes > 0) [[likely]] {
      if (lane_ == 0) copy_boxes(stage);
    } else if (p_.chunks) {
      copy_rows(stage);
      ptx::cp_async_arrive(stages_.barrier(stage));
    } else {
      copy_elements(stage);
      ptx::mbarrier_arrive(stages_.barrier(stage));
    }
    key_ += kStep<kConfig>;
    find();
  }

 private:
  // Of this lane's key of the next tile. A key past the unit's is not looked up, but for the first
  // of a box.
  __device__ void find() {
    while (key_ >= unit_.end) [[unlikely]] {
        done_ = !walk_.take(unit_);
        if (done_) return;
        key_ = first_key<kConfig>(p_, unit_, warp_);
      }
    const int key = key_ + lane_ % kTileKeys;
    if (key >= unit_.end) {
      place_ = {0, 0, 0, 0};
    } else {
      place_ = attention::decode::find_place<kFp8>(p_, unit_.at, unit_.batch, unit_.kv_head, key);
    }
  }

  __device__ void copy_boxes(int stage) {
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
                       i * p_.box_columns, place_.row, 0, unit_.kv_head, lead);
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
      const bool exists = key_ + row < unit_.end;
      unsigned char* const to = stages_.k_tile(stage) + Tile::chunk_offset(row, chunk);
      copy_chunk(to, p_.k.data, element_at(p_.k, lead, at) + column, exists && in_k);
      copy_chunk(to + kConfig.tile_bytes(), p_.v.data, element_at(p_.v, lead, at) + column,
                 exists && in_v);
    }
  }

  __device__ int64_t element_at(const attention::RowMatrix& x, int lead, int row) const {
    return lead * x.batch + unit_.kv_head * x.head + row * x.row;
  }

  // 16 bytes from element `at` on, or zeros.
  __device__ void copy_chunk(unsigned char* to, const void* data, int64_t at, bool exists) const {
    const auto* const bytes = static_cast<const unsigned char*>(data);
    ptx::cp_async_16(to, exists ? bytes + at * kConfig.kv_bytes : bytes, exists);
  }

  // The same of rows that are not aligned chunks, by ordinary loads.
  __device__ void copy_elements(int stage) const {
#pragma unroll 1
    for (int row = 0; row < kTileKeys; ++row) {
      const int lead = __shfl_sync(0xffffffffU, place_.lead, row);
      const int at = __shfl_sync(0xffffffffU, place_.row, row);
      const bool exists = key_ + row < unit_.end;
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
  Walk<kConfig.rows()> walk_;
  Unit unit_;
  int key_;  // of the next tile
  attention::decode::KeyPlace place_;
  bool done_ = false;
  int warp_, lane_;
};

}  // namespace flashcore::cuda::decode_sm90::stream_kv

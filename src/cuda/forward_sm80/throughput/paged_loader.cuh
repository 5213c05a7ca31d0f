// Copies tiles of K and V from a cache to shared
// memory: each row's address comes from the page table.
//
//   lanes of a row   | K, pass 0 | V, pass 0 | K, pass 1 | V, pass 1 | ...      eight, as chunks of a panel
//
// Eight lanes copy a row of K and of V in each pass. Each lane looks up one of these rows and
// passes its address to the others by a shuffle: one lookup per lane and tile, for any page size.
//
//   tile n    : | wait, barrier | copy n + 1 | address of n + 2 | read the table for n + 3 | S = Q K^T ...
//
// The table is read two tiles before the copy, so that the copy does not wait for it.
//
// A key that no query of the block sees (past the sequence's end, right of the diagonal,
// left of the window) is not looked up: its page may be anything, and its row is zeros.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_sm80/throughput/block_shared_state.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/forward_sm80/throughput/tile_loader.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// Offsets of the KV head's rows in K, or in V, in chunks of 16 bytes from the tensor's beginning.
struct CachePlaces {
  uint32_t first;      // of page 0; of the sequence if keys are contiguous
  uint32_t page, row;  // strides
};

// A block's data for lookups. Rows are counted in the sequence's cache.
struct CacheOrigin {
  const int32_t* pages;  // of the sequence
  int first_row;         // of key 0
  int seen_begin;        // the rows that some query of the block sees
  uint32_t seen_rows;
  CachePlaces of[2];  // K, V
};

template <int kElementBytes>
__device__ __forceinline__ CacheOrigin kv_origin(const PagedParams& p, const Task& task,
                                                 int block_q) {
  const attention::KvCacheParams& cache = p.cache;
  const auto kv_head = static_cast<uint32_t>(kv_head_of(p, task.head));
  const attention::BandLimits limits = attention::band_limits(task.sequence, p.band);
  const int last = min(task.first_query + block_q, static_cast<int>(task.sequence.len_q)) - 1;
  const int begin = max(0, task.first_query + limits.low);
  const int end = min(limits.len_kv, last + limits.high + 1);
  CacheOrigin origin;
  origin.pages = cache.pages;
  origin.first_row = static_cast<int>(task.sequence.kv_begin);
  origin.seen_begin = origin.first_row + begin;
  origin.seen_rows = static_cast<uint32_t>(max(0, end - begin));
  uint32_t lead = 0;
  if (cache.pages == nullptr) {
    lead = static_cast<uint32_t>(task.batch);
  } else if (cache.flat) {
    origin.pages += attention::listed_rows(cache, task.batch).first_page * cache.table_page;
  } else {
    origin.pages += task.batch * cache.table_batch;
  }
  for (int i = 0; i < 2; ++i) {
    const ChunkStrides& strides = i == 0 ? p.k_chunks : p.v_chunks;
    origin.of[i] = {kv_head * strides.head + lead * strides.lead, strides.lead, strides.row};
  }
  return origin;
}

// Copies consecutive tiles of K and V.
template <Config kConfig>
struct PagedKvLoader {
  using S = Shape<kConfig>;
  using KCopy = typename S::template KCopy<KeyOrder::plain>;
  using VCopy = typename S::template VCopy<KeyOrder::plain>;
  static constexpr int kPasses = KCopy::kPasses;
  static constexpr uint32_t kUnseen = 0xffffffffU;
  static_assert(VCopy::kPasses == kPasses && 2 * kPasses <= KCopy::kPanelChunks &&
                VCopy::kPanelChunks == KCopy::kPanelChunks && S::kBytes == 2);

  uint32_t at;       // this lane's row of the next tile begins here, in chunks; kUnseen: no row
  int row;           // this lane's row of the tile after that
  uint32_t in_page;  // its offset from the same row of page 0, or kUnseen
  int stored;        // its page, as the table says

  __device__ __forceinline__ PagedKvLoader(const PagedParams& p, const CacheOrigin& origin,
                                           int /*len_kv*/, int tile, int thread) {
    if (thread == 0) shared_origin() = origin;
    __syncthreads();
    const int pass = KCopy::chunk_of(thread) / 2 % kPasses;
    row = origin.first_row + tile * S::kBlockKv + pass * KCopy::kRowsPerPass +
          KCopy::source_row(thread);
    look_up(p, thread);
    advance(p, thread);
  }

  __device__ __forceinline__ void load(const PagedParams& p, unsigned char* shared, int stage) {
    const int thread = lane_source<kConfig, Features::none>();
    unsigned char* const k_tile = shared + S::k_offset(0) + stage * S::kStageBytes;
    unsigned char* const k_to = KCopy::target(k_tile, thread);
    unsigned char* const v_to = VCopy::target(k_tile + S::KTile::kBytes, thread);
    if (p.whole_chunks && __all_sync(0xffffffffU, at != kUnseen)) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        KCopy::whole_row(k_to, source(p.k, of_lane(2 * pass, thread), thread), pass, thread);
        VCopy::whole_row(v_to, source(p.v, of_lane(2 * pass + 1, thread), thread), pass, thread);
      }
    } else {
#pragma unroll 1
      for (int pass = 0; pass < kPasses; ++pass) {
        const uint32_t k_at = of_lane(2 * pass, thread), v_at = of_lane(2 * pass + 1, thread);
        KCopy::part_row(k_to, source(p.k, k_at, thread), pass, k_at != kUnseen,
                        p.head_dim_qk / S::kChunkElements, p.k.data, thread);
        VCopy::part_row(v_to, source(p.v, v_at, thread), pass, v_at != kUnseen,
                        p.head_dim_v / S::kChunkElements, p.v.data, thread);
      }
    }
    ptx::cp_async_commit();
    advance(p, thread);
  }

 private:
  // 1 KB together with the state that all kernels keep: see block_shared_state.
  static_assert(sizeof(CacheOrigin) + sizeof(BlockSharedState<kConfig.warps>) <= 1024);
  __device__ __forceinline__ static CacheOrigin& shared_origin() {
    return ptx::static_shared<CacheOrigin>();
  }

  // Returns this thread's chunk of a row.
  __device__ __forceinline__ static const unsigned char* source(const attention::RowMatrix& m,
                                                                uint32_t row_at, int thread) {
    const uint32_t chunk = row_at + static_cast<uint32_t>(KCopy::chunk_of(thread));
    return static_cast<const unsigned char*>(m.data) + uint64_t{chunk} * tile::kChunkBytes;
  }
  // Returns the address known to lane `lane` of the eight.
  __device__ __forceinline__ uint32_t of_lane(int lane, int thread) const {
    return __shfl_sync(0xffffffffU, at, (thread & 24) + lane);
  }

  // Starts the table's load for `row`, if a query sees it; the next advance() waits for it.
  __device__ __forceinline__ void look_up(const PagedParams& p, int thread) {
    const CacheOrigin& origin = shared_origin();
    stored = 0;
    in_page = kUnseen;
    if (static_cast<uint32_t>(row - origin.seen_begin) >= origin.seen_rows) return;
    const CachePlaces& places = origin.of[thread & 1];
    const uint32_t page = p.cache.by_page_size.divide(static_cast<uint32_t>(row));
    const uint32_t rows =
        static_cast<uint32_t>(row) - page * static_cast<uint32_t>(p.cache.page_size);
    in_page = places.first + rows * places.row;
    if (p.cache.pages != nullptr) {
      stored = __ldg(origin.pages + int64_t{static_cast<int>(page)} * p.table_step);
    }
  }

  // Advances to the next tile.
  __device__ __forceinline__ void advance(const PagedParams& p, int thread) {
    const int page = attention::clamped(stored, 0, p.cache.num_pages - 1);
    if (page != stored && p.cache.page_status != nullptr) atomicExch(p.cache.page_status, 1);
    at = in_page == kUnseen
             ? kUnseen
             : in_page + static_cast<uint32_t>(page) * shared_origin().of[thread & 1].page;
    row += S::kBlockKv;
    look_up(p, thread);
  }
};

// The loader of a kernel with parameters P.
template <class P, Config kConfig, Features kFeatures, class Stored>
struct LoaderOf {
  using Type = KvLoader<kConfig, kFeatures, Stored>;
};
template <Config kConfig, Features kFeatures, class Stored>
struct LoaderOf<PagedParams, kConfig, kFeatures, Stored> {
  using Type = PagedKvLoader<kConfig>;
};

}  // namespace flashcore::cuda::forward_sm80::throughput

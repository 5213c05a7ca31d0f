// Tiles of K and V out of a cache, on their way to shared memory: each row comes from where the page
// table says.
//
//   lanes of a row   | K, pass 0 | V, pass 0 | K, pass 1 | V, pass 1 | ...      eight, as chunks of a panel
//
// Eight lanes copy a row of K and of V in each pass. Each of them looks up one of these rows, and
// hands its place to the others by a shuffle: one lookup a lane and tile, whatever the page size is.
//
//   tile n    : | wait, barrier | copy n + 1 | place of n + 2 | read the table for n + 3 | S = Q K^T ...
//
// The table is read two tiles before the copy, so that nobody waits for it.
//
// A key that no query of the block sees (past the entry's end, right of the diagonal, left of the
// window) is not looked up: its page may be anything, and its rows are zeros.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_sm80/throughput/notes.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/forward_sm80/throughput/tile_loader.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// What lookups of a block go by: registers are short, so each warp writes it down.
struct CacheOrigin {
  const int32_t* pages;     // of the entry; null where its keys are in one piece
  int batch;                // then the index of that piece
  int row;                  // of key 0, in the entry's cache
  int seen_begin, seen_end;  // the keys that some query of the block sees
  uint32_t k_head, v_head;  // where the KV head begins, in chunks
};

template <int kElementBytes>
__device__ __forceinline__ CacheOrigin kv_origin(const PagedParams& p, const Task& task,
                                                 int block_q) {
  const attention::KvCacheParams& cache = p.cache;
  const auto kv_head = static_cast<uint32_t>(kv_head_of(p, task.head));
  const attention::BandLimits limits = attention::band_limits(task.sequence, p.band);
  const int last = min(task.first_query + block_q, static_cast<int>(task.sequence.len_q)) - 1;
  CacheOrigin origin;
  origin.pages = nullptr;
  if (cache.pages != nullptr) {
    const int64_t in_table =
        cache.flat ? attention::listed_rows(cache, task.batch).first_page * cache.table_page
                   : task.batch * cache.table_batch;
    origin.pages = cache.pages + in_table;
  }
  origin.batch = task.batch;
  origin.row = static_cast<int>(task.sequence.kv_begin);
  origin.seen_begin = max(0, task.first_query + limits.low);
  origin.seen_end = min(limits.len_kv, last + limits.high + 1);
  origin.k_head = kv_head * p.k_chunks.head;
  origin.v_head = kv_head * p.v_chunks.head;
  return origin;
}

// Copies tiles of K and V one after the other.
template <Config kConfig>
struct PagedKvLoader {
  using S = Shape<kConfig>;
  using KCopy = typename S::template KCopy<KeyOrder::plain>;
  using VCopy = typename S::template VCopy<KeyOrder::plain>;
  static constexpr int kPasses = KCopy::kPasses;
  static constexpr uint32_t kUnseen = 0xffffffffU;
  static_assert(VCopy::kPasses == kPasses && 2 * kPasses <= KCopy::kPanelChunks &&
                VCopy::kPanelChunks == KCopy::kPanelChunks && S::kBytes == 2);

  uint32_t at;  // where this lane's row of the next tile begins, in chunks; kUnseen: nowhere
  int key;      // of the tile after that: this lane's
  int stored;   // what the table says of it

  __device__ __forceinline__ PagedKvLoader(const PagedParams& p, const CacheOrigin& origin,
                                           int /*len_kv*/, int tile, int thread) {
    if (thread % 32 == 0) notes(thread) = origin;
    __syncwarp();
    const int pass = KCopy::chunk_of(thread) / 2 % kPasses;
    key = tile * S::kBlockKv + pass * KCopy::kRowsPerPass + KCopy::source_row(thread);
    stored = stored_page(p, origin);
    advance(p, thread);
  }

  __device__ __forceinline__ void load(const PagedParams& p, unsigned char* shared, int stage) {
    const int thread = lane_source<kConfig, Features::none>();
    unsigned char* const k_tile = shared + S::k_offset(0) + stage * S::kStageBytes;
    unsigned char* const k_to = KCopy::target(k_tile, thread);
    unsigned char* const v_to = VCopy::target(k_tile + S::KTile::kBytes, thread);
    const unsigned char* const k = first_row(p.k, thread);
    const unsigned char* const v = first_row(p.v, thread);
    if (p.whole_chunks && __all_sync(0xffffffffU, at != kUnseen)) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        KCopy::whole_row(k_to, k + byte_offset(of_lane(2 * pass, thread)), pass, thread);
        VCopy::whole_row(v_to, v + byte_offset(of_lane(2 * pass + 1, thread)), pass, thread);
      }
    } else {
#pragma unroll 1
      for (int pass = 0; pass < kPasses; ++pass) {
        const uint32_t k_at = of_lane(2 * pass, thread), v_at = of_lane(2 * pass + 1, thread);
        KCopy::part_row(k_to, k + byte_offset(k_at), pass, k_at != kUnseen,
                        p.head_dim_qk / S::kChunkElements, p.k.data, thread);
        VCopy::part_row(v_to, v + byte_offset(v_at), pass, v_at != kUnseen,
                        p.head_dim_v / S::kChunkElements, p.v.data, thread);
      }
    }
    ptx::cp_async_commit();
    advance(p, thread);
  }

 private:
  static constexpr int kWarps = kConfig.warps;
  struct WarpNotes {
    CacheOrigin of[kWarps];
  };
  // With what all kernels write down, 1 KB: see block_notes.
  static_assert(sizeof(WarpNotes) + sizeof(BlockNotes<kWarps>) <= 1024);
  __device__ __forceinline__ static CacheOrigin& notes(int thread) {
    return ptx::static_shared<WarpNotes>().of[thread / 32];
  }

  __device__ __forceinline__ static const unsigned char* first_row(const attention::RowMatrix& m,
                                                                   int thread) {
    return static_cast<const unsigned char*>(m.data) +
           KCopy::chunk_of(thread) * tile::kChunkBytes;
  }
  __device__ __forceinline__ static uint64_t byte_offset(uint32_t chunks) {
    return uint64_t{chunks} * tile::kChunkBytes;
  }
  // What lane `lane` of the eight knows.
  __device__ __forceinline__ uint32_t of_lane(int lane, int thread) const {
    return __shfl_sync(0xffffffffU, at, (thread & 24) + lane);
  }

  __device__ __forceinline__ bool is_seen(const CacheOrigin& origin) const {
    return key >= origin.seen_begin && key < origin.seen_end;
  }
  __device__ __forceinline__ static int page_of(const PagedParams& p, int row) {
    return static_cast<int>(p.cache.by_page_size.divide(static_cast<uint32_t>(row)));
  }

  // What the table says of `key`; nobody waits for it yet.
  __device__ __forceinline__ int stored_page(const PagedParams& p, const CacheOrigin& origin) const {
    if (origin.pages == nullptr) return origin.batch;
    if (!is_seen(origin)) return 0;
    return __ldg(origin.pages + page_of(p, origin.row + key) * p.cache.table_page);
  }

  // The place of `key`, by what the table says of it.
  __device__ __forceinline__ uint32_t place(const PagedParams& p, const CacheOrigin& origin,
                                            int thread) const {
    if (!is_seen(origin)) return kUnseen;
    const int row = origin.row + key;
    const int lead = attention::clamped(stored, 0, p.cache.num_pages - 1);
    if (lead != stored && p.cache.page_status != nullptr) atomicExch(p.cache.page_status, 1);
    const auto in_page = static_cast<uint32_t>(row - page_of(p, row) * p.cache.page_size);
    const bool of_k = thread % 2 == 0;
    return (of_k ? origin.k_head : origin.v_head) +
           static_cast<uint32_t>(lead) * (of_k ? p.k_chunks.lead : p.v_chunks.lead) +
           in_page * (of_k ? p.k_chunks.row : p.v_chunks.row);
  }

  // On to the next tile.
  __device__ __forceinline__ void advance(const PagedParams& p, int thread) {
    const CacheOrigin& origin = notes(thread);
    at = place(p, origin, thread);
    key += S::kBlockKv;
    stored = stored_page(p, origin);
  }
};

// What loads the tiles of a kernel that is told P.
template <class P, Config kConfig, Features kFeatures, class Stored>
struct LoaderOf {
  using Type = KvLoader<kConfig, kFeatures, Stored>;
};
template <Config kConfig, Features kFeatures, class Stored>
struct LoaderOf<PagedParams, kConfig, kFeatures, Stored> {
  using Type = PagedKvLoader<kConfig>;
};

}  // namespace flashcore::cuda::forward_sm80::throughput

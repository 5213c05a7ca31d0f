// One block's pass over its keys, left to right.
//
//   tile n    : | wait, barrier | S = Q K^T | P = 2^(S - reference) | O += P V |
//   tile n + 1:                 | load K, V ---------------------------------->
//
// A hot tile is one straight line that the compiler overlaps; a second warp of the scheduler fills
// the rest. Other tiles (the first, those that a mask cuts, all with features) are done in slices
// of fewer keys, which leaves registers for what happens to their scores; slices that no row of the
// warp sees are skipped.
//
// Softmax without a maximum (stale): the slices up to the first mask-free one set each row's
// reference, later ones neither compare nor rescale. bf16 P and fp32 sums share the range of
// exponents, fp16 P gets a headroom below its largest number; finish_sums proves afterwards that
// nothing overflowed, and a block without the proof is computed again, online.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/forward_sm80/element.cuh"
#include "cuda/forward_sm80/fetched_bias.cuh"
#include "cuda/forward_sm80/fp32_math.cuh"
#include "cuda/forward_sm80/scores.cuh"
#include "cuda/forward_sm80/task.cuh"
#include "cuda/forward_sm80/value_guard.cuh"
#include "cuda/forward_sm80/warp_math.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_sm80 {

enum class Softmax {
  stale,    // no maximum after the first mask-free tile
  online,   // a maximum and a rescale every tile
  guarded,  // online, with the values rewritten by guard_values
};

// threadIdx.x, from a register if there is one for it.
template <Config kConfig>
__device__ __forceinline__ int lane_source() {
  return kConfig.spares_registers() ? static_cast<int>(threadIdx.x) : ptx::thread_index();
}

// Copies tiles of K and V of one head, one after the other.
template <Config kConfig, Features kFeatures>
struct KvLoader {
  using S = Shape<kConfig>;
  const unsigned char *k, *v;
  int rows_left;

  __device__ __forceinline__ KvLoader(const Params& p, const Task& task, int first_tile) {
    const int kv_head = task.head / (p.heads_q / p.heads_kv);
    const int first = first_tile * S::kBlockKv;
    const int64_t row = task.sequence.kv_begin + first;
    const auto thread = static_cast<int>(threadIdx.x);
    k = S::KCopy::start(row_pointer<S::kBytes>(p.k, task.batch, kv_head, row), S::kBytes * p.k.row,
                        thread);
    v = S::VCopy::start(row_pointer<S::kBytes>(p.v, task.batch, kv_head, row), S::kBytes * p.v.row,
                        thread);
    rows_left = static_cast<int>(task.sequence.len_kv) - first;
  }

  __device__ __forceinline__ void load(const Params& p, unsigned char* shared, int stage) {
    const int thread = lane_source<kConfig>();
    unsigned char* const k_tile = shared + S::k_offset(0) + stage * S::kStageBytes;
    unsigned char* const v_tile = k_tile + S::KTile::kBytes;
    if (p.whole_chunks && rows_left >= S::kBlockKv) {
      k = S::KCopy::whole(k_tile, k, p.k_pass_bytes, thread);
      v = S::VCopy::whole(v_tile, v, p.v_pass_bytes, thread);
    } else {
      if (kFeatures != Features::all || p.chunks_qk) {
        k = S::KCopy::part(k_tile, k, p.k_pass_bytes, rows_left, p.head_dim_qk / S::kChunkElements,
                           p.k.data, thread);
      } else {
        k = S::KCopy::elements(k_tile, k, p.k_pass_bytes, rows_left, p.head_dim_qk, thread);
      }
      if (kFeatures != Features::all || p.chunks_v) {
        v = S::VCopy::part(v_tile, v, p.v_pass_bytes, rows_left, p.head_dim_v / S::kChunkElements,
                           p.v.data, thread);
      } else {
        v = S::VCopy::elements(v_tile, v, p.v_pass_bytes, rows_left, p.head_dim_v, thread);
      }
    }
    ptx::cp_async_commit();
    rows_left -= S::kBlockKv;
  }
};

template <Config kConfig, Features kFeatures>
__device__ __forceinline__ void load_queries(const Params& p, const Task& task,
                                             unsigned char* shared) {
  using S = Shape<kConfig>;
  using Copy = typename S::QCopy;
  const auto thread = static_cast<int>(threadIdx.x);
  const unsigned char* const source = Copy::start(
      row_pointer<S::kBytes>(p.q, task.batch, task.head, task.sequence.q_begin + task.first_query),
      S::kBytes * p.q.row, thread);
  const int rows = static_cast<int>(task.sequence.len_q) - task.first_query;
  if (kFeatures != Features::all || p.chunks_qk) {
    Copy::part(shared, source, p.q_pass_bytes, rows, p.head_dim_qk / S::kChunkElements, p.q.data,
               thread);
  } else {
    Copy::elements(shared, source, p.q_pass_bytes, rows, p.head_dim_qk, thread);
  }
  ptx::cp_async_commit();
}

// The tiles of a loop: up to `end` for the block, of them [hot_begin, hot_end) hot for the warp.
struct LoopBounds {
  int end;
  int hot_begin, hot_end;
};

// What a warp asks for only outside of hot tiles; and, where registers are short, its loop bounds.
struct WarpNotes {
  LoopBounds bounds;
  attention::TileRange slices;
  attention::BandLimits limits;
  int first_row;
  Task task;  // for features
};

// In the pass that counts kinds every pair that is not removed weighs 1.
template <int kGroups, int kProducts>
__device__ __forceinline__ void level_scores(Scores<kGroups, kProducts>& s) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[g][n][e] = s[g][n][e] == kNoKey ? kNoKey : 0.0F;
    }
  }
}

// Whether every row of the warp has seen a key.
template <Config kConfig>
__device__ __forceinline__ bool all_have_reference(const WarpState<kConfig>& w) {
  bool all = true;
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
    all = all && w.reference[g][0] > kNoKey && w.reference[g][1] > kNoKey;
  }
  return __all_sync(0xffffffffU, all);
}

// Fills `w`. Guarded: whether V held anything that is not finite.
template <Config kConfig, class Element, Features kFeatures, Softmax kSoftmax>
__device__ __forceinline__ bool attend(const Params& p, const Task& task, unsigned char* shared,
                                       WarpState<kConfig>& w, GuardPass pass) {
  using S = Shape<kConfig>;
  constexpr int kSliceKeys =
      kSoftmax == Softmax::guarded ? kGuardedSliceKeys : kConfig.slice_keys(kFeatures);
  constexpr int kSlices = S::kBlockKv / kSliceKeys;
  constexpr float kHeadroom = kSoftmax == Softmax::stale ? Element::kHeadroom : 0.0F;
  constexpr float kLag = kIsFp32<Element> ? kSlack : 0.0F;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const bool kinds = kSoftmax == Softmax::guarded && pass == GuardPass::kinds;
  const float scale = kFeatures != Features::none ? 1.0F : p.softmax_scale * kLog2E;

  w.clear();
  bool found = false;
  attention::TileRange block = attention::tile_range(task.sequence, p.band, task.first_query,
                                                     task.first_query + S::kBlockQ, S::kBlockKv);
  if (kFeatures == Features::all && p.splits > 1) {
    const int first = find_split(p, ptx::block_index()) * p.split_tiles;
    block.begin = max(block.begin, first);
    block.end = min(block.end, first + p.split_tiles);
  }
  if (block.begin >= block.end) return found;

  load_queries<kConfig, kFeatures>(p, task, shared);
  KvLoader<kConfig, kFeatures> loader(p, task, block.begin);
  loader.load(p, shared, block.begin & 1);

  __shared__ WarpNotes notes_of_warp[S::kThreads / 32];
  WarpNotes& notes = notes_of_warp[warp];
  const int first_row = task.first_query + warp * S::kWarpRows;
  const attention::TileRange slices =
      attention::tile_range(task.sequence, p.band, first_row, first_row + S::kWarpRows, kSliceKeys);
  // The tile of the first mask-free slice gives every row its reference; those after it are hot.
  const LoopBounds bounds{block.end, slices.full_begin / kSlices + 1, slices.full_end / kSlices};
  const LoopBounds& at = kConfig.spares_registers() ? bounds : notes.bounds;
  if (lane == 0) {
    notes.bounds = bounds;
    notes.slices = slices;
    notes.limits = attention::band_limits(task.sequence, p.band);
    notes.first_row = first_row;
    if (kFeatures != Features::none) notes.task = task;
  }
  __syncwarp();

  QueryFragments<kConfig> q;
  if constexpr (kConfig.q_in_registers) {
    ptx::cp_async_wait<1>();
    __syncthreads();
    q.place(shared, thread);
#pragma unroll
    for (int step = 0; step < S::kQkSteps; ++step) q.read(step);
  }

#pragma unroll 1
  for (int tile = block.begin; tile < at.end; ++tile) {
    const int stage = tile & 1;
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile has landed, and nobody reads the one before any more
    if (tile + 1 < at.end) loader.load(p, shared, stage ^ 1);
    if constexpr (kSoftmax == Softmax::guarded) {
      found |= guard_values<Element, S::VTile::kBytes>(
          shared + S::v_offset(0) + stage * S::kStageBytes, pass, thread, S::kThreads);
      __syncthreads();
    }
    const int here = lane_source<kConfig>();
    q.place(shared, here);
    const uint32_t k_tile = ptx::shared_address(shared) + S::k_offset(0) + stage * S::kStageBytes +
                            columns_first<typename S::KTile>(here % 32);
    const uint32_t v_tile = ptx::shared_address(shared) + S::v_offset(0) + stage * S::kStageBytes +
                            value_place<Element, typename S::VTile>(here % 32);
    if constexpr (kSoftmax == Softmax::stale) {
      if (tile >= at.hot_begin && tile < at.hot_end) {
        Scores<S::kGroups, S::kBlockKv / 8> s;
        Probabilities<S::kGroups, S::kBlockKv / 16> pr;
        multiply_qk<kConfig, Element>(s, q, k_tile);
        exponentiate<kConfig, false>(s, w, scale);
        pack<Element>(pr, s);
        multiply_pv<kConfig, Element>(w, pr, v_tile);
        continue;
      }
    }
#pragma unroll 1
    for (int i = 0; i < kSlices; ++i) {
      const int slice = tile * kSlices + i, first_key = slice * kSliceKeys;
      const attention::TileRange range = notes.slices;
      if (slice < range.begin || slice >= range.end) continue;
      const LanePlace place{notes.first_row + here % 32 / 4, 2 * (here % 4)};
      Scores<S::kGroups, kSliceKeys / 8> s;
      [[maybe_unused]] FetchedBias<S::kGroups, kSliceKeys / 8> bias;
      if constexpr (kFeatures == Features::scores) {
        if (p.bias.data != nullptr) bias.fetch(p, notes.task, place, first_key);
      }
      if constexpr (!kIsFp32<Element>) {
        multiply_qk<kConfig, Element>(s, q, k_tile + i * kSliceKeys * S::KTile::kPanelRowBytes);
      } else if constexpr (kSoftmax == Softmax::guarded) {
        multiply_qk_exactly<kConfig>(s, shared, shared + S::k_offset(0) + stage * S::kStageBytes,
                                     i * kSliceKeys, here);
      } else {
        multiply_qk_fp32<kConfig>(s, q, k_tile + i * kSliceKeys * S::KTile::kPanelRowBytes);
      }
      if constexpr (kFeatures == Features::scores) {
        cap_scores(s, p);
        if (p.bias.data != nullptr) {
          bias.add_to(s, p.bias_type);
        }
        if (p.alibi_slopes.data != nullptr) add_alibi(s, p, notes.task, place, first_key);
      } else if constexpr (kFeatures == Features::all) {
        apply_features<kIsFp32<Element>, kSoftmax != Softmax::guarded>(s, p, notes.task, place,
                                                                       first_key);
      }
      if (slice < range.full_begin || slice >= range.full_end) {
        mask_band(s, notes.limits, place, first_key);
      }
      if (kinds) level_scores(s);
      if (kSoftmax != Softmax::stale || slice <= range.full_begin || !all_have_reference(w)) {
        raise_reference<kConfig>(s, w, scale, kHeadroom, kLag);
      }
      exponentiate<kConfig, true>(s, w, scale);
      if constexpr (kFeatures == Features::all) {
        if (p.dropout && !kinds) drop(s, p, notes.task, place, first_key);
      }
      const uint32_t v_slice = v_tile + i * kSliceKeys * S::VTile::kPanelRowBytes;
      if constexpr (kIsFp32<Element>) {
        multiply_pv_fp32<kConfig>(w, s, v_slice);
      } else {
        Probabilities<S::kGroups, kSliceKeys / 16> pr;
        pack<Element>(pr, s);
        multiply_pv<kConfig, Element>(w, pr, v_slice);
        if constexpr (kFeatures == Features::all) {
          // Dropped keys leave sums that are small beside their terms: P needs a second half.
          if (p.dropout && !kinds) {
            take_rest<Element>(s, pr);
            pack<Element>(pr, s);
            multiply_pv<kConfig, Element>(w, pr, v_slice);
          }
        }
      }
    }
  }
  return found;
}

}  // namespace flashcore::cuda::forward_sm80

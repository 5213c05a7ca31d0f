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
#include "cuda/forward_sm80/score_lines.cuh"
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
template <Config kConfig, Features kFeatures>
__device__ __forceinline__ int lane_source() {
  return kConfig.spares_registers(kFeatures) ? static_cast<int>(threadIdx.x) : ptx::thread_index();
}

// Where the keys and values of a block's head begin, for those who compute addresses anew.
struct KvOrigin {
  const unsigned char *k, *v;
};

template <int kElementBytes>
__device__ __forceinline__ KvOrigin kv_origin(const Params& p, const Task& task) {
  const int kv_head = kv_head_of(p, task.head);
  return {row_pointer<kElementBytes>(p.k, task.batch, kv_head, task.sequence.kv_begin),
          row_pointer<kElementBytes>(p.v, task.batch, kv_head, task.sequence.kv_begin)};
}

// Copies tiles of K and V of one head, one after the other.
template <Config kConfig, Features kFeatures>
struct KvLoader {
  using S = Shape<kConfig>;
  using KCopy = typename S::template KCopy<key_order(kFeatures)>;
  using VCopy = typename S::template VCopy<key_order(kFeatures)>;
  const unsigned char *k, *v;
  int rows_left;

  __device__ __forceinline__ KvLoader(const Params& p, const KvOrigin& origin, int len_kv, int tile,
                                      int thread) {
    const int first = tile * S::kBlockKv;
    const int64_t k_row = S::kBytes * p.k.row, v_row = S::kBytes * p.v.row;
    k = KCopy::start(origin.k + first * k_row, k_row, thread);
    v = VCopy::start(origin.v + first * v_row, v_row, thread);
    rows_left = len_kv - first;
  }

  __device__ __forceinline__ void load(const Params& p, unsigned char* shared, int stage) {
    const int thread = lane_source<kConfig, kFeatures>();
    unsigned char* const k_tile = shared + S::k_offset(0) + stage * S::kStageBytes;
    unsigned char* const v_tile = k_tile + S::KTile::kBytes;
    if (p.whole_chunks && rows_left >= S::kBlockKv) {
      k = KCopy::whole(k_tile, k, p.k_pass_bytes, thread);
      v = VCopy::whole(v_tile, v, p.v_pass_bytes, thread);
    } else {
      if (kFeatures != Features::all || p.chunks_qk) {
        k = KCopy::part(k_tile, k, p.k_pass_bytes, rows_left, p.head_dim_qk / S::kChunkElements,
                        p.k.data, thread);
      } else {
        k = KCopy::elements(k_tile, k, p.k_pass_bytes, rows_left, p.head_dim_qk, thread);
      }
      if (kFeatures != Features::all || p.chunks_v) {
        v = VCopy::part(v_tile, v, p.v_pass_bytes, rows_left, p.head_dim_v / S::kChunkElements,
                        p.v.data, thread);
      } else {
        v = VCopy::elements(v_tile, v, p.v_pass_bytes, rows_left, p.head_dim_v, thread);
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
  // Only where there are registers for its addresses beside O.
  if (kConfig.spares_registers(kFeatures) && p.whole_chunks && rows >= S::kBlockQ) {
    Copy::whole(shared, source, p.q_pass_bytes, thread);
  } else if (kFeatures != Features::all || p.chunks_qk) {
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
  LineContext context;   // of Features::scores
  float references[32];  // of the warp's rows, while the registers of a hot tile are full
  bool far;              // some score of the first tiles is too near to the cap for score_lines
  bool wrong;            // one of a later tile was
};

// The same for all of a block. One in a kernel, for all of its passes.
template <int kWarps>
struct BlockNotes {
  Task task;
  KeyLimits limits;
  KvOrigin origin;
  WarpNotes warps[kWarps];
};
template <int kWarps>
__device__ __forceinline__ BlockNotes<kWarps>& block_notes() {
  // 1 KB with what a block is charged for: two of head dimension 64 share the 100 KB of sm_89.
  static_assert(sizeof(BlockNotes<kWarps>) <= 1024);
  __shared__ BlockNotes<kWarps> notes;
  return notes;
}

// References of this lane's rows to where score_lines look for them, and back.
template <Config kConfig>
__device__ __forceinline__ void put_references(WarpNotes& notes, const WarpState<kConfig>& w,
                                               int lane) {
#pragma unroll
  for (int slot = 0; slot < 2 * kConfig.row_groups; ++slot) {
    notes.references[8 * slot + lane / 4] = w.reference[slot / 2][slot % 2];
  }
}
template <Config kConfig>
__device__ __forceinline__ void get_references(const WarpNotes& notes, WarpState<kConfig>& w,
                                               int lane) {
#pragma unroll
  for (int slot = 0; slot < 2 * kConfig.row_groups; ++slot) {
    w.reference[slot / 2][slot % 2] = notes.references[8 * slot + lane / 4];
  }
}

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

// The largest magnitude among this lane's scores; NaN is ignored.
template <int kGroups, int kProducts>
__device__ __forceinline__ float largest_of(const Scores<kGroups, kProducts>& s) {
  float largest = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) largest = fmaxf(largest, fabsf(s[g][n][e]));
    }
  }
  return largest;
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

// Fills `w`. Guarded: whether V held anything that is not finite. Otherwise: whether the block has
// to be computed again, for all that this thread knows before finish_sums.
template <Config kConfig, class Element, Features kFeatures, Softmax kSoftmax>
__device__ __forceinline__ bool attend(const Params& p, const Task& task, unsigned char* shared,
                                       WarpState<kConfig>& w, GuardPass pass) {
  using S = Shape<kConfig>;
  constexpr int kSliceKeys =
      kSoftmax == Softmax::guarded ? kGuardedSliceKeys : kConfig.slice_keys(kFeatures);
  constexpr int kSlices = S::kBlockKv / kSliceKeys;
  constexpr KeyOrder kOrder = key_order(kFeatures);
  constexpr bool kScores = kFeatures == Features::scores;
  constexpr bool kGuarded = kSoftmax == Softmax::guarded;
  constexpr float kLag = kIsFp32<Element> ? kSlack : 0.0F;
  const float headroom = kSoftmax != Softmax::stale ? 0.0F
                         : kScores                  ? p.score_headroom
                                                    : Element::kHeadroom;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const bool kinds = kSoftmax == Softmax::guarded && pass == GuardPass::kinds;
  const float scale = kFeatures != Features::none ? 1.0F : p.softmax_scale * kLog2E;

  w.clear();
  bool found = false;
  const KeyLimits limits = key_limits(task.sequence, p.band);
  const auto len_q = static_cast<int>(task.sequence.len_q);
  attention::TileRange block =
      key_tiles(limits, len_q, task.first_query, task.first_query + S::kBlockQ, S::kBlockKv);
  if (kFeatures == Features::all && p.splits > 1) {
    const int first = find_split(p, ptx::block_index()) * p.split_tiles;
    block.begin = max(block.begin, first);
    block.end = min(block.end, first + p.split_tiles);
  }

  auto& noted = block_notes<kConfig.warps>();
  // Where registers are short, found anew for each tile.
  const auto own_notes = [&]() -> WarpNotes& {
    return noted.warps[lane_source<kConfig, kFeatures>() / 32];
  };
  const auto first_row_of = [&](int here) {
    return noted.task.first_query + here / 32 * S::kWarpRows;
  };
  if (thread == 0) {
    noted.task = task;
    noted.limits = limits;
  }
  if (block.begin >= block.end) return found;

  load_queries<kConfig, kFeatures>(p, task, shared);
  const KvOrigin origin = kv_origin<S::kBytes>(p, task);
  KvLoader<kConfig, kFeatures> loader(p, origin, static_cast<int>(task.sequence.len_kv),
                                      block.begin, thread);
  loader.load(p, shared, block.begin & 1);

  if (kScores && thread == 0) noted.origin = origin;
  const int first_row = task.first_query + warp * S::kWarpRows;
  const attention::TileRange slices =
      key_tiles(limits, len_q, first_row, first_row + S::kWarpRows, kSliceKeys);
  // The tile of the first mask-free slice gives every row its reference; those after it are hot.
  LoopBounds bounds{block.end, slices.full_begin / kSlices + 1, slices.full_end / kSlices};
  if (kScores && (p.score_line == ScoreLine::none || abs(task.sequence.offset) > kFarthest)) {
    bounds.hot_end = 0;
  }
  if (lane == 0) {
    WarpNotes& notes = noted.warps[warp];
    notes.bounds = bounds;
    notes.slices = slices;
    if (kScores) notes.context = line_context<kConfig>(p, task, first_row);
    notes.far = notes.wrong = false;
  }
  constexpr bool kPut = kSoftmax == Softmax::stale && !kConfig.spares_registers(kFeatures);
  if constexpr (kPut) put_references<kConfig>(noted.warps[warp], w, lane);
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
  for (int tile = block.begin;; ++tile) {
    WarpNotes& notes = own_notes();
    const LoopBounds& at = kConfig.spares_registers(kFeatures) ? bounds : notes.bounds;
    if (tile >= at.end) break;
    const int stage = tile & 1;
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile has landed, and nobody reads the one before any more
    if (tile + 1 < at.end) {
      if (kScores && !kConfig.spares_registers(kFeatures)) {  // for pointers
        loader = KvLoader<kConfig, kFeatures>(p, noted.origin, noted.limits.len_kv, tile + 1,
                                              lane_source<kConfig, kFeatures>());
      }
      loader.load(p, shared, stage ^ 1);
    }
    if constexpr (kSoftmax == Softmax::guarded) {
      found |= guard_values<Element, S::VTile::kBytes>(
          shared + S::v_offset(0) + stage * S::kStageBytes, pass, thread, S::kThreads);
      __syncthreads();
    }
    const int here = lane_source<kConfig, kFeatures>();
    q.place(shared, here);
    const uint32_t k_tile = ptx::shared_address(shared) + S::k_offset(0) + stage * S::kStageBytes +
                            columns_first<typename S::KTile>(here % 32);
    const uint32_t v_tile = ptx::shared_address(shared) + S::v_offset(0) + stage * S::kStageBytes +
                            value_place<Element, typename S::VTile>(here % 32);
    if constexpr (kSoftmax == Softmax::stale && kScores) {
      if (tile >= at.hot_begin && tile < at.hot_end) {
        if (scored_line<kConfig, Element>(w, q, p, notes.context, here % 32, tile * S::kBlockKv,
                                          k_tile, v_tile, notes.references + here % 32 / 4,
                                          notes.wrong)) {
          continue;
        }
      }
    }
    if constexpr (kSoftmax == Softmax::stale && !kScores) {
      if (tile >= at.hot_begin && tile < at.hot_end) {
        Scores<S::kGroups, S::kBlockKv / 8> s;
        Probabilities<S::kGroups, S::kBlockKv / 16> pr;
        multiply_qk<kConfig, Element>(s, q, k_tile);
        if constexpr (kPut) get_references<kConfig>(notes, w, here % 32);
        exponentiate<kConfig, false>(s, w, scale);
        pack<Element>(pr, s);
        multiply_pv<kConfig, Element>(w, pr, v_tile);
        continue;
      }
    }
    if constexpr (kPut) get_references<kConfig>(notes, w, here % 32);
#pragma unroll 1
    for (int i = 0; i < kSlices; ++i) {
      const int slice = tile * kSlices + i, first_key = slice * kSliceKeys;
      const attention::TileRange range = notes.slices;
      if (slice < range.begin || slice >= range.end) continue;
      const LanePlace place{first_row_of(here) + here % 32 / 4, first_key_of_lane(kOrder, here)};
      Scores<S::kGroups, kSliceKeys / 8> s;
      [[maybe_unused]] FetchedBias<2 * S::kGroups, kSliceKeys / 16> bias;
      if constexpr (kScores) {
        if (p.bias.data != nullptr) bias.fetch(p, noted.task, place, first_key);
      }
      if constexpr (!kIsFp32<Element>) {
        multiply_qk<kConfig, Element>(s, q, k_tile + i * kSliceKeys * S::KTile::kPanelRowBytes);
      } else if constexpr (kGuarded) {
        multiply_qk_exactly<kConfig>(s, shared, shared + S::k_offset(0) + stage * S::kStageBytes,
                                     i * kSliceKeys, here);
      } else {
        multiply_qk_fp32<kConfig>(s, q, k_tile + i * kSliceKeys * S::KTile::kPanelRowBytes);
      }
      if constexpr (kScores) {
        if (!kGuarded && p.score_line == ScoreLine::softcap) {
          if (largest_of(s) > p.cap_first) notes.far = true;
        }
        scale_scores<false>(s, p.score_factor, p.cap_log2);
        if (p.bias.data != nullptr) {
          bias.template add_to<kGuarded ? BiasPart::whole : BiasPart::positive>(s, p.bias_type);
        }
        if (kGuarded && p.alibi_slopes.data != nullptr) {
          add_alibi<kOrder>(s, p, noted.task, place, first_key);
        }
      } else if constexpr (kFeatures == Features::all) {
        apply_features<kIsFp32<Element>, !kGuarded>(s, p, noted.task, place, first_key);
      }
      if (slice < range.full_begin || slice >= range.full_end) {
        mask_band<kOrder>(s, noted.limits, place, first_key);
      }
      if (kinds) level_scores(s);
      if (kSoftmax != Softmax::stale || slice <= range.full_begin || !all_have_reference(w)) {
        raise_reference<kConfig>(s, w, scale, headroom, kLag);
      }
      // What only lowers scores comes after: references that are too high do no harm.
      if constexpr (kScores && !kGuarded) {
        if (p.bias.data != nullptr) bias.template add_to<BiasPart::negative>(s, p.bias_type);
        if (p.alibi_slopes.data != nullptr) add_alibi<kOrder>(s, p, noted.task, place, first_key);
      }
      exponentiate<kConfig, true>(s, w, scale);
      if constexpr (kFeatures == Features::all) {
        if (p.dropout && !kinds) drop(s, p, noted.task, place, first_key);
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
    if constexpr (kPut) put_references<kConfig>(notes, w, here % 32);
    if constexpr (kScores && !kGuarded) {
      // A bias may have removed a whole tile of some row.
      __syncwarp();
      if (notes.far || !all_have_reference(w)) {
        bounds.hot_begin = tile + 2;
        if (here % 32 == 0) notes.bounds.hot_begin = tile + 2;
        __syncwarp();
      }
    }
  }
  __syncwarp();
  if constexpr (kPut)
    get_references<kConfig>(own_notes(), w, lane_source<kConfig, kFeatures>() % 32);
  if constexpr (kScores && !kGuarded) return own_notes().wrong;
  return found;
}

// The task that attend was given, which registers do not keep over the main loop. A barrier has
// passed since.
template <Config kConfig>
__device__ __forceinline__ const Task& noted_task() {
  return block_notes<kConfig.warps>().task;
}

}  // namespace flashcore::cuda::forward_sm80

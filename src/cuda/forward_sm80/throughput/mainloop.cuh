// One block's pass over its keys, left to right except with ALiBi (key_turns.hpp).
//
//   tile n    : | wait, barrier | S = Q K^T | P = 2^(S - reference) | O += P V |
//   tile n + 1:                 | load K, V ---------------------------------->
//
// A hot tile is straight-line code that the compiler overlaps; the scheduler's second warp
// fills the rest. Other tiles (the first, those cut by a mask, and those whose features
// have no line in score_lines.cuh) are processed in slices of fewer keys, which leaves
// registers for the operations on scores. Slices that no row of the warp sees are skipped.
//
// Softmax without a running maximum (stale): the slices up to the first mask-free one set
// each row's reference; later ones neither compare nor rescale. bf16 P and fp32 sums have
// the same range of exponents, and fp16 P has headroom below its largest number.
// finish_sums proves afterwards that nothing overflowed and that no reference was too
// large to be subtracted after rounding. A block without the proof is recomputed with the
// online softmax, which scales after it subtracts, and so is right for scores of any size.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_sm80/throughput/block_shared_state.cuh"
#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/fetched_bias.cuh"
#include "cuda/forward_sm80/throughput/fp32_math.cuh"
#include "cuda/forward_sm80/throughput/fp8_scales.cuh"
#include "cuda/forward_sm80/throughput/fp8_tiles.cuh"
#include "cuda/forward_sm80/throughput/paged_loader.cuh"
#include "cuda/forward_sm80/throughput/score_lines.cuh"
#include "cuda/forward_sm80/throughput/scores.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/forward_sm80/throughput/tile_loader.cuh"
#include "cuda/forward_sm80/throughput/value_guard.cuh"
#include "cuda/forward_sm80/throughput/warp_math.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

enum class Softmax {
  stale,    // no maximum after the first mask-free tile
  online,   // a maximum and a rescale per tile
  guarded,  // online, with the values rewritten by guard_values
};

// Returns whether every row of the warp has seen a key.
template <Config kConfig>
__device__ __forceinline__ bool all_have_reference(const WarpState<kConfig>& w) {
  bool all = true;
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
    all = all && w.reference[g][0] > kNoKey && w.reference[g][1] > kNoKey;
  }
  return __all_sync(0xffffffffU, all);
}

// Fills `w`. Returns, if guarded, whether V held a value that is not finite; otherwise,
// whether this thread knows before finish_sums that the block must be recomputed.
template <Config kConfig, class Element, Features kFeatures, Softmax kSoftmax, class P>
__device__ __forceinline__ bool attend(const P& p, const Task& task, unsigned char* shared,
                                       WarpState<kConfig>& w, GuardPass pass) {
  using S = Shape<kConfig>;
  using Stored = typename StoredShape<Element, kConfig>::Type;
  using Loader = typename LoaderOf<P, kConfig, kFeatures, Stored>::Type;
  constexpr bool kFp8 = kIsFp8<Element>;
  constexpr int kSliceKeys =
      kSoftmax == Softmax::guarded ? kGuardedSliceKeys : kConfig.slice_keys(kFeatures);
  constexpr int kSlices = S::kBlockKv / kSliceKeys;
  constexpr KeyOrder kOrder = key_order(kFeatures);
  constexpr bool kScores = kFeatures == Features::scores;
  constexpr bool kGuarded = kSoftmax == Softmax::guarded;
  constexpr Units kUnits = kSoftmax == Softmax::stale ? Units::log2 : Units::natural;
  constexpr float kLag = kIsFp32<Element> ? kSlack : 0.0F;
  const float headroom = kSoftmax != Softmax::stale ? 0.0F
                         : kScores                  ? p.score_headroom
                                                    : Element::kHeadroom;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const bool kinds = kSoftmax == Softmax::guarded && pass == GuardPass::kinds;
  // Factor from a slice's scores to units of log2.
  const float unit = kSoftmax != Softmax::stale    ? p.score_unit_log2
                     : kFeatures != Features::none ? 1.0F
                                                   : p.softmax_scale * kLog2E;

  w.clear();
  bool found = false;
  const attention::BandLimits limits = attention::band_limits(task.sequence, p.band);
  const auto len_q = static_cast<int>(task.sequence.len_q);
  attention::TileRange block = attention::tile_range(limits, len_q, task.first_query,
                                                     task.first_query + S::kBlockQ, S::kBlockKv);
  if (kFeatures == Features::all && p.splits > 1) {
    const int tiles = split_tiles(task, S::kBlockKv);
    const int first = find_split(p, ptx::block_index()) * tiles;
    block.begin = max(block.begin, first);
    block.end = min(block.end, first + tiles);
  }

  auto& block_state = block_shared_state<kConfig.warps>();
  // If registers are scarce, recomputed for each tile.
  const auto own_state = [&]() -> WarpSharedState& {
    return block_state.warps[lane_source<kConfig, kFeatures>() / 32];
  };
  const auto first_row_of = [&](int here) {
    return block_state.task.first_query + here / 32 * S::kWarpRows;
  };
  const auto tile_of = [&](int turn) { return kScores ? block_state.turns.tile(turn) : turn; };
  if (thread == 0) {
    block_state.task = task;
    block_state.limits = limits;
    if constexpr (kFeatures == Features::all) keep_dropout_key(p);
  }
  if constexpr (kFp8) {
    const auto len_kv = static_cast<int>(task.sequence.len_kv);
    const bool wrong = note_scales<kConfig>(p, task, block.begin * S::kBlockKv,
                                            min(block.end * S::kBlockKv, len_kv), thread);
    found = !kGuarded && wrong;
  }
  if (block.begin >= block.end) return found;

  const bool alibi = kScores && p.alibi_slopes.data != nullptr;
  KeyTurns turns{block.begin, block.end, block.begin};
  if (alibi) {
    turns.first =
        nearest_tile(task.first_query + task.sequence.offset, block.begin, block.end, S::kBlockKv);
  }
  if constexpr (!kFp8) load_queries<kConfig, kFeatures>(p, task, shared);
  const auto origin = kv_origin<Stored::kBytes>(p, task, S::kBlockQ);
  Loader loader(p, origin, static_cast<int>(task.sequence.len_kv), turns.first, thread);
  loader.load(p, shared, kFp8 ? 0 : block.begin & 1);
  if constexpr (kFp8) convert_queries<kConfig>(p, task, shared);

  if constexpr (kScores) {
    if (thread == 0) {
      block_state.origin = origin;
      block_state.turns = turns;
    }
  }
  const int first_row = task.first_query + warp * S::kWarpRows;
  const attention::TileRange slices =
      attention::tile_range(limits, len_q, first_row, first_row + S::kWarpRows, kSliceKeys);
  // The tile of the first mask-free slice gives every row its reference; those after it are hot.
  LoopBounds bounds{block.end, slices.full_begin / kSlices + 1, slices.full_end / kSlices};
  int hot_turn = 0;
  if (alibi) {  // Tiles up to the warp's last diagonal set it, and any mask-free tile may be hot.
    const int64_t diagonal = first_row + S::kWarpRows - 1 + task.sequence.offset;
    bounds.hot_begin = (slices.full_begin + kSlices - 1) / kSlices;
    hot_turn =
        block.begin + 1 - turns.first + nearest_tile(diagonal, turns.first, block.end, S::kBlockKv);
  }
  if (kScores && (p.score_line == ScoreLine::none || abs(task.sequence.offset) > kFarthest ||
                  (alibi && fabsf(alibi_step<Units::log2>(p, task)) > kSteepest))) {
    bounds.hot_end = 0;
  }
  if (lane == 0) {
    WarpSharedState& state = block_state.warps[warp];
    state.bounds = bounds;
    state.slices = slices;
    if (kScores) {
      state.context = line_context<kConfig>(p, task, first_row);
      state.hot_turn = hot_turn;
    }
    state.far = state.wrong = false;
  }
  constexpr bool kPut = kSoftmax == Softmax::stale && !kConfig.spares_registers(kFeatures);
  if constexpr (kPut) put_references<kConfig>(block_state.warps[warp], w, lane);
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
  for (int turn = block.begin;; ++turn) {
    WarpSharedState& state = own_state();
    const LoopBounds& at = kConfig.spares_registers(kFeatures) ? bounds : state.bounds;
    if (turn >= at.end) break;
    const int stage = kFp8 ? 0 : turn & 1;
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile has landed, and nothing reads the one before any more
    if constexpr (kFp8) {
      convert_keys<kConfig>(p, shared, lane_source<kConfig, kFeatures>());
      __syncthreads();  // and its bytes may be overwritten
    }
    const int tile = tile_of(turn);
    if (turn + 1 < at.end) {
      if constexpr (kScores) {  // no registers for pointers, and any order
        loader = Loader(p, block_state.origin, block_state.limits.len_kv, tile_of(turn + 1),
                        lane_source<kConfig, kFeatures>());
      }
      loader.load(p, shared, stage ^ 1);
    }
    if constexpr (kSoftmax == Softmax::guarded) {
      if constexpr (kFp8) {
        found |=
            guard_scaled_values<typename S::VTile>(shared + S::v_offset(0), p, block_state.task,
                                                   tile * S::kBlockKv, pass, thread, S::kThreads);
      } else {
        found |= guard_values<Element, S::VTile::kBytes>(
            shared + S::v_offset(0) + stage * S::kStageBytes, pass, thread, S::kThreads);
      }
      __syncthreads();
    }
    const int here = lane_source<kConfig, kFeatures>();
    q.place(shared, here);
    const uint32_t k_tile = ptx::shared_address(shared) + S::k_offset(0) + stage * S::kStageBytes +
                            columns_first<typename S::KTile>(here % 32);
    const uint32_t v_tile = ptx::shared_address(shared) + S::v_offset(0) + stage * S::kStageBytes +
                            value_place<Element, typename S::VTile>(here % 32);
    if constexpr (kSoftmax == Softmax::stale && kScores) {
      if (turn >= state.hot_turn && tile >= at.hot_begin && tile < at.hot_end) {
        if (scored_line<kConfig, Element>(w, q, p, state.context, here % 32, tile * S::kBlockKv,
                                          k_tile, v_tile, state.references + here % 32 / 4,
                                          state.wrong)) {
          continue;
        }
      }
    }
    if constexpr (kSoftmax == Softmax::stale && !kScores) {
      if (tile >= at.hot_begin && tile < at.hot_end) {
        Scores<S::kGroups, S::kBlockKv / 8> s;
        Probabilities<S::kGroups, S::kBlockKv / 16> pr;
        multiply_qk<kConfig, Element>(s, q, k_tile);
        if constexpr (kPut) get_references<kConfig>(state, w, here % 32);
        exponentiate<kConfig, false>(s, w, unit);
        pack<Element>(pr, s);
        multiply_pv<kConfig, Element>(w, pr, v_tile);
        continue;
      }
    }
    if constexpr (kPut) get_references<kConfig>(state, w, here % 32);
#pragma unroll 1
    for (int i = 0; i < kSlices; ++i) {
      const int slice = (kScores ? tile_of(ptx::opaque(turn)) : tile) * kSlices + i,
                first_key = slice * kSliceKeys;
      const attention::TileRange range = state.slices;
      if (slice < range.begin || slice >= range.end) continue;
      const LanePlace place{first_row_of(here) + here % 32 / 4, first_key_of_lane(kOrder, here)};
      Scores<S::kGroups, kSliceKeys / 8> s;
      [[maybe_unused]] FetchedBias<2 * S::kGroups, kSliceKeys / 16> bias;
      if constexpr (kScores) {
        if (p.bias.data != nullptr) bias.fetch(p, block_state.task, place, first_key);
      }
      if constexpr (!kIsFp32<Element>) {
        multiply_qk<kConfig, Element>(s, q, k_tile + i * kSliceKeys * S::KTile::kPanelRowBytes);
      } else if constexpr (kGuarded) {
        multiply_qk_exactly<kConfig>(s, shared, shared + S::k_offset(0) + stage * S::kStageBytes,
                                     i * kSliceKeys, here);
      } else {
        multiply_qk_fp32<kConfig>(s, q, k_tile + i * kSliceKeys * S::KTile::kPanelRowBytes);
      }
      if constexpr (kFp8) {
        scale_products(s, p, first_key, block_state.limits.len_kv, here % 32);
      }
      if constexpr (kScores) {
        if (!kGuarded && largest_of(s) > p.largest_first) {
          (p.score_line == ScoreLine::softcap ? state.far : state.wrong) = true;
        }
        scale_scores<kUnits, false>(s, p);
        if (p.alibi_slopes.data != nullptr) {
          add_alibi<kOrder, kUnits>(s, p, block_state.task, place, first_key);
        }
        if (p.bias.data != nullptr) {
          constexpr BiasPart kPart = kGuarded ? BiasPart::whole : BiasPart::positive;
          bias.template add_to<kPart, kUnits>(s, p.bias_type);
        }
      } else if constexpr (kFeatures == Features::all) {
        apply_features<kIsFp32<Element>, !kGuarded>(s, p, block_state.task, place, first_key);
      }
      if (range.needs_mask(slice)) {
        mask_band<kOrder>(s, block_state.limits, place, first_key);
      }
      if (kinds) level_scores(s);
      if constexpr (kSoftmax != Softmax::stale) {
        raise_exactly<kConfig>(s, w, unit, kLag);
      } else if (slice <= range.full_begin || p.alibi_slopes.data != nullptr ||
                 !all_have_reference(w)) {
        raise_reference<kConfig>(s, w, unit, headroom);
      }
      // The negative part of a bias comes after the reference: references that are too high do no harm.
      if constexpr (kScores && !kGuarded) {
        if (p.bias.data != nullptr) {
          bias.template add_to<BiasPart::negative, kUnits>(s, p.bias_type);
        }
      }
      if constexpr (kSoftmax != Softmax::stale) {
        exponentiate_exactly<kConfig>(s, w, unit);
      } else {
        exponentiate<kConfig, true>(s, w, unit);
      }
      if constexpr (kFeatures == Features::all) {
        if (p.dropout) drop(s, p, block_state.task, place, first_key, kinds);
      }
      [[maybe_unused]] bool scaled = false;
      if constexpr (kFp8) {
        if (p.v_scale.by_key() && !kinds) {
          scale_probabilities<kConfig, kGuarded>(s, p, first_key, block_state.limits.len_kv,
                                                 here % 32);
          scaled = true;
        }
      }
      const uint32_t v_slice = v_tile + i * kSliceKeys * S::VTile::kPanelRowBytes;
      if constexpr (kIsFp32<Element>) {
        multiply_pv_fp32<kConfig>(w, s, v_slice);
      } else {
        Probabilities<S::kGroups, kSliceKeys / 16> pr;
        pack<Element>(pr, s);
        multiply_pv<kConfig, Element>(w, pr, v_slice);
        if constexpr (kFeatures == Features::all) {
          // Dropped keys leave sums that are small compared with their
          // terms, and so do small scales of V: P needs a second term.
          if ((p.dropout && !kinds) || (kFp8 && scaled)) {
            take_rest<Element>(s, pr);
            pack<Element>(pr, s);
            multiply_pv<kConfig, Element>(w, pr, v_slice);
          }
        }
      }
    }
    if constexpr (kPut) put_references<kConfig>(state, w, here % 32);
    if constexpr (kScores && !kGuarded) {
      // A bias may have removed a whole tile of some row.
      __syncwarp();
      if (state.far || !all_have_reference(w)) {
        if (here % 32 == 0) state.hot_turn = max(state.hot_turn, turn + 2);
        __syncwarp();
      }
    }
  }
  __syncwarp();
  if constexpr (kPut)
    get_references<kConfig>(own_state(), w, lane_source<kConfig, kFeatures>() % 32);
  if constexpr (kScores && !kGuarded) return own_state().wrong;
  return found;
}

}  // namespace flashcore::cuda::forward_sm80::throughput

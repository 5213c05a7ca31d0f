// One block's pass over its keys, left to right.
//
//   tile n    : | wait, barrier | S = Q K^T | (features, mask) | P = 2^(S - reference) | O += P V |
//   tile n + 1:                 | load K, V ------------------------------------------------------>
//
// Every warp stops at its own last tile. Within one, the phases are a straight line that the
// compiler overlaps; a second warp of the scheduler fills the rest.
//
// Softmax without a maximum (kStale): the tiles up to the first mask-free one set each row's
// reference, later ones neither compare nor rescale. bf16 P and fp32 sums share the range of
// exponents, fp16 P gets a headroom below its largest number; finish_sums proves afterwards that
// nothing overflowed, and a block without the proof is computed again, online.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/forward_sm80/element.cuh"
#include "cuda/forward_sm80/scores.cuh"
#include "cuda/forward_sm80/task.cuh"
#include "cuda/forward_sm80/value_guard.cuh"
#include "cuda/forward_sm80/warp_math.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"

namespace flashcore::cuda::forward_sm80 {

enum class Softmax {
  stale,    // no maximum after the first mask-free tile
  online,   // a maximum and a rescale every tile
  guarded,  // online, with the values rewritten by guard_values
};

// Copies tiles of K and V of one head, one after the other.
template <Config kConfig, bool kFeatures>
struct KvLoader {
  using S = Shape<kConfig>;
  const Params& p;
  const unsigned char *k, *v;
  int rows_left;

  __device__ __forceinline__ KvLoader(const Params& params, const Task& task, int first_tile)
      : p(params) {
    const int kv_head = task.head / (p.heads_q / p.heads_kv);
    const int first = first_tile * S::kBlockKv;
    const int64_t row = task.sequence.kv_begin + first;
    const auto thread = static_cast<int>(threadIdx.x);
    k = S::KCopy::start(row_pointer(p.k, task.batch, kv_head, row), 2 * p.k.row, thread);
    v = S::VCopy::start(row_pointer(p.v, task.batch, kv_head, row), 2 * p.v.row, thread);
    rows_left = static_cast<int>(task.sequence.len_kv) - first;
  }

  __device__ __forceinline__ void load(unsigned char* shared, int stage) {
    const auto thread = static_cast<int>(threadIdx.x);
    unsigned char* const k_tile = shared + S::k_offset(stage);
    unsigned char* const v_tile = shared + S::v_offset(stage);
    const int64_t k_bytes = 2 * p.k.row, v_bytes = 2 * p.v.row;
    if (p.whole_chunks && rows_left >= S::kBlockKv) {
      S::KCopy::whole(k_tile, k, k_bytes, thread);
      S::VCopy::whole(v_tile, v, v_bytes, thread);
    } else {
      if (!kFeatures || p.chunks_qk) {
        S::KCopy::part(k_tile, k, k_bytes, rows_left, p.head_dim_qk / 8, p.k.data, thread);
      } else {
        S::KCopy::elements(k_tile, k, k_bytes, rows_left, p.head_dim_qk, thread);
      }
      if (!kFeatures || p.chunks_v) {
        S::VCopy::part(v_tile, v, v_bytes, rows_left, p.head_dim_v / 8, p.v.data, thread);
      } else {
        S::VCopy::elements(v_tile, v, v_bytes, rows_left, p.head_dim_v, thread);
      }
    }
    ptx::cp_async_commit();
    k += S::kBlockKv * k_bytes;
    v += S::kBlockKv * v_bytes;
    rows_left -= S::kBlockKv;
  }
};

template <Config kConfig, bool kFeatures>
__device__ __forceinline__ void load_queries(const Params& p, const Task& task,
                                             unsigned char* shared) {
  using Copy = typename Shape<kConfig>::QCopy;
  const auto thread = static_cast<int>(threadIdx.x);
  const int64_t row_bytes = 2 * p.q.row;
  const unsigned char* const source =
      Copy::start(row_pointer(p.q, task.batch, task.head, task.sequence.q_begin + task.first_query),
                  row_bytes, thread);
  const int rows = static_cast<int>(task.sequence.len_q) - task.first_query;
  if (!kFeatures || p.chunks_qk) {
    Copy::part(shared, source, row_bytes, rows, p.head_dim_qk / 8, p.q.data, thread);
  } else {
    Copy::elements(shared, source, row_bytes, rows, p.head_dim_qk, thread);
  }
  ptx::cp_async_commit();
}

// Fills `w`. Guarded: whether V held anything that is not finite.
template <Config kConfig, class Element, bool kFeatures, Softmax kSoftmax>
__device__ __forceinline__ bool attend(const Params& p, const Task& task, unsigned char* shared,
                                       WarpState<kConfig>& w, GuardPass pass) {
  using S = Shape<kConfig>;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const int first_row = task.first_query + warp * S::kWarpRows;
  const attention::TileRange block = attention::tile_range(
      task.sequence, p.band, task.first_query, task.first_query + S::kBlockQ, S::kBlockKv);
  const attention::TileRange mine = attention::tile_range(
      task.sequence, p.band, first_row, first_row + S::kWarpRows, S::kBlockKv);
  const attention::BandLimits limits = attention::band_limits(task.sequence, p.band);
  const LanePlace place{first_row + lane / 4, 2 * (lane % 4)};
  const float scale = kFeatures ? 1.0F : p.softmax_scale * kLog2E;
  constexpr float kHeadroom = kSoftmax == Softmax::stale ? Element::kHeadroom : 0.0F;

  w.clear();
  bool found = false;
  if (block.begin >= block.end) return found;

  load_queries<kConfig, kFeatures>(p, task, shared);
  KvLoader<kConfig, kFeatures> loader(p, task, block.begin);
  loader.load(shared, 0);
  const uint32_t base = ptx::shared_address(shared);
  QueryFragments<kConfig> q;
  q.address = base + rows_first<typename S::QTile>(lane) +
              warp * S::kWarpRows * S::QTile::kPanelRowBytes;
  if constexpr (kConfig.q_in_registers) {
    ptx::cp_async_wait<1>();
    __syncthreads();
#pragma unroll
    for (int step = 0; step < S::kQkSteps; ++step) q.read(step);
  }
  const uint32_t k_lane = base + S::k_offset(0) + columns_first<typename S::KTile>(lane);
  const uint32_t v_lane = base + S::v_offset(0) + rows_first<typename S::VTile>(lane);

  const auto softmax_and_pv = [&](Scores<kConfig>& s, int tile, uint32_t v_address, auto safe) {
    exponentiate<kConfig, decltype(safe)::value>(s, w, scale);
    if constexpr (kFeatures) {
      if (p.dropout && !(kSoftmax == Softmax::guarded && pass == GuardPass::kinds)) {
        drop<kConfig>(s, p, task, place, tile * S::kBlockKv);
      }
    }
    Probabilities<kConfig> pr;
    pack<kConfig, Element>(pr, s);
    multiply_pv<kConfig, Element>(w, pr, v_address);
  };
  const int hot_begin = mine.full_begin + 1;
  int stage = 0;
#pragma unroll 1
  for (int tile = block.begin; tile < block.end; ++tile, stage ^= 1) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile has landed, and nobody reads the one before any more
    if (tile + 1 < block.end) loader.load(shared, stage ^ 1);
    if constexpr (kSoftmax == Softmax::guarded) {
      found |= guard_values<Element, S::VTile::kBytes>(shared + S::v_offset(stage), pass, thread,
                                                       S::kThreads);
      __syncthreads();
    }
    const uint32_t k_address = k_lane + stage * S::kStageBytes;
    const uint32_t v_address = v_lane + stage * S::kStageBytes;
    if (kSoftmax == Softmax::stale && tile >= hot_begin && tile < mine.full_end) {
      Scores<kConfig> s;
      multiply_qk<kConfig, Element>(s, q, k_address);
      softmax_and_pv(s, tile, v_address, std::false_type{});
    } else if (tile >= mine.begin && tile < mine.end) {
      Scores<kConfig> s;
      multiply_qk<kConfig, Element>(s, q, k_address);
      if constexpr (kFeatures) {
        apply_features<kConfig>(s, p, task, place, tile * S::kBlockKv);
      }
      if (tile < mine.full_begin || tile >= mine.full_end) {
        mask_band<kConfig>(s, limits, place, tile * S::kBlockKv);
      }
      bool raise = true;
      if constexpr (kSoftmax == Softmax::stale) {  // every row has a reference: keep it
        bool all = true;
#pragma unroll
        for (int g = 0; g < S::kGroups; ++g) {
          all = all && w.reference[g][0] > kNoKey && w.reference[g][1] > kNoKey;
        }
        raise = !__all_sync(0xffffffffU, all);
      }
      if (kSoftmax == Softmax::guarded && pass == GuardPass::kinds) {
#pragma unroll
        for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
          for (int n = 0; n < S::kBlockKv / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) s[g][n][e] = s[g][n][e] == kNoKey ? kNoKey : 0.0F;
          }
        }
      }
      if (raise) raise_reference<kConfig>(s, w, scale, kHeadroom);
      softmax_and_pv(s, tile, v_address, std::true_type{});
    }
  }
  return found;
}

}  // namespace flashcore::cuda::forward_sm80

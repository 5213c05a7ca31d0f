// A block's pass over its keys, left to right.
//
//   tile n    : | wait, barrier | S = Q K^T | (cap, mask) | maxima, P | T = P V | O = O b + T a |
//   tile n + 1:                 | copy K, V ------------------------------------------------->
//
// Each KV tile has its own references, the largest scores
// of its rows, and is added to the earlier sums in fp32:
//
//   reference R of the sums, r of the tile:  a = 2^(r - max(R, r)),  b = 2^(R - max(R, r))
//
// So the Tensor Cores add up few keys, which matters since they truncate each product some 13
// bits below the sum that it is added to. No P exceeds e4m3's range, and a key that dominates
// a row makes the others of its tile too small for e4m3, but no other tile's.
#pragma once

#include <cstdint>

#include "cuda/forward_fp8_sm89/throughput/scores.cuh"
#include "cuda/forward_fp8_sm89/throughput/shape.cuh"
#include "cuda/forward_fp8_sm89/throughput/tile_loader.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

// Read again for each use rather than kept across the main loop.
__device__ __forceinline__ int lane_index() { return ptx::thread_index() % 32; }
__device__ __forceinline__ int warp_row() { return ptx::thread_index() / 32 * kWarpRows; }

// A warp's 16 rows. All values are relative to `reference`, in units of log2.
template <class S>
struct Rows {
  Outputs<S> o;
  float sum[2];      // this lane's sum of P before rounding
  float rounded[2];  // sum of the rounded P, over the whole row
  float reference[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      sum[slot] = rounded[slot] = 0;
      reference[slot] = kNoReference;
    }
  }
};

// s = P of the tile, whose sums are added to the rows' sums.
template <class S>
__device__ __forceinline__ void exponentiate(Scores<S>& s, Rows<S>& rows, float scale,
                                             Meeting& factor) {
  float reference[2], total[2];
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float largest = attention::quad_max(attention::lane_max(s, slot));
    reference[slot] = fmaxf(kNoReference, largest * scale - kTop);
    const float raised = fmaxf(rows.reference[slot], reference[slot]);
    factor.before[slot] = ptx::exp2_approx(rows.reference[slot] - raised);
    factor.now[slot] = ptx::exp2_approx(reference[slot] - raised);
    rows.reference[slot] = raised;
  }
  attention::exponentiate<0, S::kKeyProducts>(s, reference, scale, total);
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    rows.sum[slot] = fmaf(rows.sum[slot], factor.before[slot], total[slot] * factor.now[slot]);
  }
}

// Processes one KV tile. The warp sees some of its keys.
template <class S>
__device__ __forceinline__ void add_tile(typename S::Shared& smem, Rows<S>& rows, int tile,
                                         bool masked, bool two_terms) {
  using QTile = typename S::QTile;
  using KvTile = typename S::KvTile;
  const auto& stage = smem.kv[tile % kStages];
  const int lane = lane_index();
  const uint32_t q_lane =
      ptx::shared_address(smem.q) + QTile::chunk_offset(warp_row() + lane % 16, lane / 16);
  const uint32_t k_lane =
      ptx::shared_address(stage[0]) + KvTile::chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const uint32_t v_lane = ptx::shared_address(stage[1]) + KvTile::chunk_offset(lane, 0);
  Scores<S> s;
  multiply_qk<S>(s, q_lane, k_lane);
  const auto& work = smem.work;
  if (work.cap.cap_log2 > 0) cap_scores<S>(s, work.cap);
  if (masked) {
    mask_scores<S>(s, work.task.limits, work.task.first_query + warp_row() + lane / 4,
                   tile * S::kBlockKv, lane);
  }
  Meeting factor;
  exponentiate<S>(s, rows, work.scale, factor);
  // The second term is packed at once, so that S need not be kept during the first term's products.
  Probabilities<S> p, rest = {};
  pack<S>(p, s);
  if (two_terms) pack_rest<S>(rest, s, p);
#pragma unroll 1
  for (bool last = !two_terms;; last = true) {
    add_rounded<S>(rows.rounded, p, factor);
    add_outputs<S>(rows.o, p, factor, v_lane);
    if (last) break;
#pragma unroll
    for (int i = 0; i < 4 * S::kKeySteps; ++i) p[i / 4][i % 4] = rest[i / 4][i % 4];
    factor.before[0] = factor.before[1] = 1;
  }
}

// Fills `rows` with the results over the keys that they see.
template <class S>
__device__ __forceinline__ void attend(const Params& p, typename S::Shared& smem, Rows<S>& rows) {
  rows.clear();
  const Task& task = smem.work.task;
  if (task.tiles.empty()) return;
  load_queries<S>(p, smem);
  load_keys<S>(p, smem, task.tiles.begin);
  const int first = task.first_query + warp_row();
  const attention::TileRange seen =
      attention::tile_range(task.limits, task.len_q, first, first + kWarpRows, S::kBlockKv);
  const bool two_terms = p.precise || seen.size() * S::kBlockKv <= kFewKeys;
#pragma unroll 1
  for (int tile = task.tiles.begin; tile < task.tiles.end; ++tile) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile has landed, and nothing reads the one before any more
    if (tile + 1 < task.tiles.end) load_keys<S>(p, smem, tile + 1);
    if (tile < seen.begin || tile >= seen.end) continue;
    add_tile<S>(smem, rows, tile, seen.needs_mask(tile), two_terms);
  }
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput

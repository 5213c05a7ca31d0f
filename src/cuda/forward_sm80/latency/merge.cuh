// Adds up the warps' partial results: each warp leaves its outputs,
// with a maximum and a sum per row, in the memory of its keys.
//
// A row is recomputed if an output is not finite, or if its reference is too
// large to be subtracted after rounding (attention/large_reference.hpp).
//
// Partial results are fp32: rounding them to 16 bits would save 0.1 us, but fails the gates.
#pragma once

#include <cstdint>

#include "cuda/attention/large_reference.hpp"
#include "cuda/attention/latency/exact.cuh"
#include "cuda/attention/latency/task.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_sm80/latency/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/unwritten.cuh"

namespace flashcore::cuda::forward_sm80::latency {

using attention::kLn2, attention::kNoKey;
using attention::latency::Task;

// Byte offset of four neighbouring outputs of a row in a warp's partial result. These
// accesses are free of bank conflicts: two fours of four rows, as a warp writes them,
// and every other four of a row, or of two alternating rows, as they are added up.
template <class S>
__device__ __forceinline__ uint32_t partial_offset(int row, int four) {
  const int place = four ^ (row % 4 * 2) ^ (row % 2) ^ (four / 8 % 2);
  return static_cast<uint32_t>(row * S::kHeadDim * 4 + place * 16);
}

// `partial` is a shared address.
template <class S>
__device__ __forceinline__ void leave_partial(uint32_t partial, typename S::Rows& rows,
                                              const Partial<S>& w, int warp, int lane) {
  // A lane's rows are eight apart and have the same layout.
  const uint32_t first = partial + partial_offset<S>(lane / 4, lane % 4 / 2) + 8 * (lane % 2);
#pragma unroll
  for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int row = 16 * g + 8 * slot;
#pragma unroll
      for (int n = 0; n < S::kOutProducts; ++n) {
        ptx::store_shared_x2(
            (first ^ (n % 4 * 32 + n / 4 % 2 * 16)) + n / 4 * 128 + row * S::kHeadDim * 4,
            w.o[g][n][2 * slot], w.o[g][n][2 * slot + 1]);
      }
      const float sum = attention::quad_sum(w.sum[g][slot]);
      if (lane % 4 == 0) {
        rows.max[warp][row + lane / 4] = w.max[g][slot];
        rows.sum[warp][row + lane / 4] = sum;
      }
    }
  }
}

// Neighbouring lanes of one warp finish a row, each of them every kRowLanes-th piece.
// If registers suffice, a thread computes its addresses before the keys have arrived:
// there is time, and the parameters needed are not yet in the constant cache.
template <class S>
struct Place {
  static constexpr int kOutputs = S::kConfig.thread_outputs();
  static constexpr int kRowLanes = S::kHeadDim / kOutputs;
  static_assert(32 % kRowLanes == 0);

  static constexpr int kPieces = kOutputs / 8, kPieceColumns = 8 * kRowLanes;  // distance of pieces

  uint16_t* o;
  float* lse;       // null: this thread stores none
  int columns;      // from the thread's first column on; 0 or less if nothing is stored
  int row, column;  // in the tile

  // Computes the addresses exactly here, neither earlier nor later.
  __device__ __forceinline__ void find(const attention::latency::Params& p, const Task& task,
                                       int thread) {
    auto its_thread = static_cast<unsigned>(thread);
    ptx::pin(its_thread);
    row = static_cast<int>(its_thread / kRowLanes);
    column = static_cast<int>(its_thread % kRowLanes * 8);
    const int query = task.first_query + row;
    const int64_t at = task.q_row + query;
    const bool exists = query < task.rows_q;
    columns = exists ? p.head_dim_v - column : 0;
    o = static_cast<uint16_t*>(p.o) + task.batch * p.o_batch + task.head * p.o_head + at * p.o_row +
        column;
    lse = nullptr;
    if (p.lse != nullptr && column == 0 && exists) {
      lse = p.lse + task.batch * p.lse_batch + task.head * p.lse_head + at * p.lse_row;
    }
    ptx::pin(o, lse, columns);
    ptx::assume_global(o);
  }
};

// Adds up the partial results of the first `active` warps.
template <class S>
__device__ __forceinline__ void merge(const attention::latency::Params& p, const Task& task,
                                      const Place<S>& place, uint32_t partials,
                                      const typename S::Rows& rows, int active, int thread) {
  using Element = typename S::Element;
  constexpr int kWarps = S::kConfig.warps, kPieces = Place<S>::kPieces;
  constexpr int kPartialBytes = 2 * S::kConfig.kv_bytes();
  const int row = place.row;
  float weight[kWarps], largest = kNoKey;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    weight[i] = i < active ? rows.max[i][row] : kNoKey;
    largest = fmaxf(largest, weight[i]);
  }
  const float reference = attention::finite_reference(largest);
  float sum = 0, o[kPieces][8] = {};
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    weight[i] = ptx::exp2_approx(weight[i] - reference);
    if (i < active) sum = fmaf(rows.sum[i][row], weight[i], sum);
  }
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    // Branch-free, so that all are read at once: past the last, the first is read with weight 0.
    const uint32_t its = partials + (i < active ? i * kPartialBytes : 0);
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
#pragma unroll
      for (int c = 0; c < 8; c += 4) {
        const int four = (place.column + c) / 4 + n * 2 * Place<S>::kRowLanes;
        // Without an active warp, nothing was written, and the value is ignored.
        ptx::may_be_unwritten(its + partial_offset<S>(row, four), active == 0 ? 16 : 0);
        const float4 x = ptx::load_shared_f32x4(its + partial_offset<S>(row, four));
        o[n][c] = fmaf(x.x, weight[i], o[n][c]);
        o[n][c + 1] = fmaf(x.y, weight[i], o[n][c + 1]);
        o[n][c + 2] = fmaf(x.z, weight[i], o[n][c + 2]);
        o[n][c + 3] = fmaf(x.w, weight[i], o[n][c + 3]);
      }
    }
  }
  const float inverse = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
  const bool large = fabsf(reference) > attention::kLargestReference;
  // If a row sees no key, there are no partial results to add up.
  const bool counts = (sum != 0 || large) && (S::kWhole || task.first_query + row < task.len_q);
  float total = large ? -kNoKey : 0;  // not finite once one output is not finite
#pragma unroll
  for (int n = 0; n < kPieces; ++n) {
    uint32_t pairs[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float low = o[n][2 * c] * inverse, high = o[n][2 * c + 1] * inverse;
      total += low + high;
      pairs[c] = counts ? Element::pack(low, high) : 0;
    }
    if (place.columns > n * Place<S>::kPieceColumns) {
      *reinterpret_cast<uint4*>(place.o + n * Place<S>::kPieceColumns) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
  if (place.lse != nullptr) {
    *place.lse = counts ? (reference + ptx::log2_approx(sum)) * kLn2 : kNoKey;
  }
  const uint32_t lanes = __ballot_sync(0xffffffffU, counts && !isfinite(total));
  if (lanes != 0) [[unlikely]] {
    __syncwarp();  // earlier stores are overwritten
    constexpr int kRowLanes = Place<S>::kRowLanes;
    attention::latency::store_exactly<Element, !S::kWhole, kRowLanes>(
        p, lanes, task.first_query + thread / 32 * (32 / kRowLanes), 0, S::kHeadDim / 32);
  }
}

}  // namespace flashcore::cuda::forward_sm80::latency

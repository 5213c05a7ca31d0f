// What the warps have found, added up: each leaves its outputs normalised, in 16 bits, with a
// log-sum-exp a row, where it had its keys.
#pragma once

#include <cstdint>

#include "cuda/attention/quad_softmax.cuh"
#include "cuda/forward_small_sm80/shape.cuh"
#include "cuda/forward_small_sm90/exact.cuh"
#include "cuda/forward_small_sm90/task.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/log2.cuh"
#include "cuda/tile/swizzle.hpp"

namespace flashcore::cuda::forward_small_sm80 {

namespace small = forward_small_sm90;
using small::kNoKey, small::Task;

inline constexpr float kLn2 = 0.6931471805599453F;

// Offset of eight neighbouring outputs in a warp's partial result, free of bank conflicts.
template <class S>
__device__ __forceinline__ int piece_offset(int row, int piece) {
  return 16 * (row * (S::kHeadDim / 8) + (piece ^ (row & 7)));
}

template <class S>
__device__ __forceinline__ void leave_partial(unsigned char* memory, typename S::Rows& rows,
                                              const Partial<S>& w, int warp, int lane) {
#pragma unroll
  for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int row = 16 * g + 8 * slot + lane / 4;
      const float sum = attention::quad_sum(w.sum[g][slot]);
      const float inverse = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
      if (lane % 4 == 0) {
        rows[warp][row] = sum == 0 ? kNoKey : w.max[g][slot] + ptx::log2_approx(sum);
      }
#pragma unroll
      for (int n = 0; n < S::kOutProducts; ++n) {
        *reinterpret_cast<uint32_t*>(memory + piece_offset<S>(row, n) + 4 * (lane % 4)) =
            S::Element::pack(w.o[g][n][2 * slot] * inverse, w.o[g][n][2 * slot + 1] * inverse);
      }
    }
  }
}

// Each row is finished by neighbouring lanes of one warp, a lane by every kRowLanes-th piece. Where
// a thread stores is found before the keys have come: there is time for it, and what it takes to
// find it is not yet in the constant cache.
template <class S>
struct Place {
  static constexpr int kOutputs = S::kConfig.thread_outputs();
  static constexpr int kRowLanes = S::kHeadDim / kOutputs;
  static_assert(32 % kRowLanes == 0);

  static constexpr int kPieces = kOutputs / 8, kPieceColumns = 8 * kRowLanes;  // to the next

  uint16_t* o;
  float* lse;       // null: the thread has none to store
  int columns;      // from the first of its own on; not more than 0 where nothing is stored
  int row, column;  // in the tile

  __device__ __forceinline__ Place(const small::Params& p, const Task& task, int thread)
      : row(thread / kRowLanes), column(thread % kRowLanes * 8) {
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
    asm volatile("" : "+l"(o), "+l"(lse), "+r"(columns));  // here, and not later
  }
};

// Adds up what the first `active` warps have left.
template <class S>
__device__ __forceinline__ void merge(const small::Params& p, const Task& task,
                                      const Place<S>& place, const unsigned char* partials,
                                      const typename S::Rows& rows, int active, int thread) {
  using Element = typename S::Element;
  constexpr int kWarps = S::kConfig.warps, kPieces = Place<S>::kPieces;
  constexpr int kPartialBytes = 2 * S::kConfig.kv_bytes();
  const int row = place.row;
  float weight[kWarps], largest = kNoKey;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    weight[i] = i < active ? rows[i][row] : kNoKey;
    largest = fmaxf(largest, weight[i]);
  }
  const float reference = attention::finite_reference(largest);
  float sum = 0, o[kPieces][8] = {};
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    weight[i] = ptx::exp2_approx(weight[i] - reference);
    sum += weight[i];
  }
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    // Without a branch, so that all are read at once: past the last the first again, by weight 0.
    const unsigned char* const its = partials + (i < active ? i * kPartialBytes : 0);
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const int piece = place.column / 8 + n * Place<S>::kRowLanes;
      const uint4 eight = *reinterpret_cast<const uint4*>(its + piece_offset<S>(row, piece));
      const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        o[n][2 * c] = fmaf(Element::to_float(pairs[c]), weight[i], o[n][2 * c]);
        o[n][2 * c + 1] = fmaf(Element::to_float(pairs[c] >> 16), weight[i], o[n][2 * c + 1]);
      }
    }
  }
  const float inverse = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
  // Where no key is seen, nothing was left that could be added up.
  const bool counts = sum != 0 && (S::kWhole || task.first_query + row < task.len_q);
  float total = 0;  // not finite as soon as one output is not
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
    __syncwarp();  // what was stored is stored again
    constexpr int kRowLanes = Place<S>::kRowLanes;
    small::store_exactly<Element, !S::kWhole, kRowLanes>(
        p, lanes, task.first_query + thread / 32 * (32 / kRowLanes), 0, S::kHeadDim / 32);
  }
}

}  // namespace flashcore::cuda::forward_small_sm80

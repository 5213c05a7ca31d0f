// One warp's 16 query rows through all key tiles, as built in rungs 08 and 09: scores, softmax
// and output in accumulator fragments, P through the warp's own shared strip, normalised
// 16-byte stores. Rungs 10 and 11 differ in which warp loads the tiles and when, not in this.
//
//   load_queries | per key tile: step = S = Q K^T | mask | softmax | P: store, load | O += P V |
//   store
//
// Registers per lane: output kHeadDim / 2, scores
// kBlockKv / 2, Q kHeadDim / 4 if it stays in registers.
#pragma once

#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/swizzled_tile.cuh"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {

// Calls visit(fragment, register) for every accumulator register of a lane.
template <int kFragments, class Visit>
__device__ __forceinline__ void for_each_register(const Visit& visit) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#pragma unroll
    for (int r = 0; r < tile::kWmmaAccumulatorRegisters; ++r) visit(f, r);
  }
}

// Reduces over the four lanes that hold a row.
template <class Combine>
__device__ __forceinline__ float row_reduce(float x, const Combine& combine) {
  x = combine(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return combine(x, __shfl_xor_sync(0xffffffffU, x, 2));
}

template <int kHeadDim, int kBlockKv, bool kQueriesInRegisters = kHeadDim == 64>
class WarpRows {
 public:
  static constexpr int kRowBytes = 2 * kHeadDim, kStripBytes = 2 * kBlockKv;
  static constexpr int kFragments = kHeadDim / kWmma, kKeyFragments = kBlockKv / kWmma;
  static constexpr int kStripHalves = kWmma * kBlockKv;  // P, per warp
  static constexpr int kScratchFloats = kWmma * kWmma;   // for accumulate_by_scalar, per warp

  // `queries`: the warp's 16 rows of the shared, swizzled Q tile; read again
  // by every step if Q does not stay in registers, and overwritten by store.
  __device__ __forceinline__ WarpRows(__half* queries, __half* strip, float* scratch)
      : lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        queries_(queries),
        strip_(strip),
        scratch_(scratch) {}

  // Starts a query tile whose first row for this warp is `first_row` of the sequence.
  __device__ __forceinline__ void begin(const RungParams& params, int first_row) {
    first_row_ = first_row;
    scale_ = positive_scale(params);
#pragma unroll
    for (int f = 0; f < kFragments; ++f) nvcuda::wmma::fill_fragment(output_[f], 0.0F);
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      max_[slot] = -std::numeric_limits<float>::infinity();
      sum_[slot] = 0;
    }
  }

  // Called once Q has landed.
  __device__ __forceinline__ void load_queries() {
    if constexpr (kQueriesInRegisters) {
#pragma unroll
      for (int d = 0; d < kFragments; ++d) {
        load_swizzled<kRowBytes>(query_registers_[d], queries_, 0, d * kWmma, lane_);
      }
    }
  }

  // Processes the tile of keys from `kv_first` on, of
  // which this block may see those before `kv_end`.
  __device__ __forceinline__ void step(const RungParams& params, const __half* keys,
                                       const __half* values, int kv_first, int kv_end) {
    Accumulator scores[kKeyFragments];
    compute_scores(keys, scores);
    const int first_row_keys = visible_keys(params, first_row_) - kv_first;
    if (first_row_keys < kBlockKv) mask(params, kv_first, scores);
    softmax(scores);
    store_probabilities(scores);
    __syncwarp();
    if (first_row_keys < min(kBlockKv, kv_end - kv_first) &&
        __any_sync(0xffffffffU, any_nonfinite<kWarpSize, kBlockKv * kHeadDim>(values, lane_))) {
      accumulate_by_scalar(params, values, kv_first);
    } else {
      accumulate(values);
    }
    __syncwarp();  // the strip is free again
  }

  // Normalises the rows in registers and stores them in 16-byte chunks, through the rows of Q.
  __device__ __forceinline__ void store(const RungParams& params, const Head& head) {
    float inverse[2];
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float sum = row_reduce(sum_[slot], [](float a, float b) { return a + b; });
      inverse[slot] = inverse_or_zero(sum);
      const int q_row = first_row_ + tile::wmma_accumulator(lane_, 0).row + 8 * slot;
      if (head.lse != nullptr && lane_ % 4 == 0 && q_row < params.seqlen_q) {
        head.lse[q_row * params.lse_stride.row] = log_sum_exp(max_[slot] * scale_.log2, sum);
      }
    }
    __syncwarp();  // no lane reads Q any more
    store_pairs<kFragments, kHeadDim>(queries_, [&](int f, int r) {
      const float scale = inverse[tile::wmma_accumulator_row_slot(r)];
      return __floats2half2_rn(output_[f].x[r] * scale, output_[f].x[r + 1] * scale);
    });
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8, kRowsAtOnce = kWarpSize / kChunks;
    const int column = lane_ % kChunks * 8;
#pragma unroll
    for (int row = lane_ / kChunks; row < kWmma; row += kRowsAtOnce) {
      if (first_row_ + row >= params.seqlen_q) break;
      *reinterpret_cast<uint4*>(head.o + (first_row_ + row) * params.o_stride.row + column) =
          *reinterpret_cast<const uint4*>(queries_ + tile::swizzle_offset<kRowBytes>(row, column));
    }
  }

 private:
  __device__ __forceinline__ void compute_scores(const __half* keys,
                                                 Accumulator (&scores)[kKeyFragments]) const {
#pragma unroll
    for (int f = 0; f < kKeyFragments; ++f) nvcuda::wmma::fill_fragment(scores[f], 0.0F);
#pragma unroll
    for (int d = 0; d < kFragments; ++d) {
      RowMajorA q;
      if constexpr (kQueriesInRegisters) {
        q = query_registers_[d];
      } else {
        load_swizzled<kRowBytes>(q, queries_, 0, d * kWmma, lane_);
      }
#pragma unroll
      for (int f = 0; f < kKeyFragments; ++f) {
        ColumnMajorB k;
        load_swizzled<kRowBytes>(k, keys, f * kWmma, d * kWmma, lane_);
        nvcuda::wmma::mma_sync(scores[f], q, k, scores[f]);
      }
    }
    if (scale_.negate) {
      for_each_register<kKeyFragments>([&](int f, int r) { scores[f].x[r] = -scores[f].x[r]; });
    }
  }

  // Sets scores of keys that a row may not see to -inf.
  __device__ __forceinline__ void mask(const RungParams& params, int kv_first,
                                       Accumulator (&scores)[kKeyFragments]) const {
    const int row = first_row_ + tile::wmma_accumulator(lane_, 0).row;
    const int visible[2] = {visible_keys(params, row) - kv_first,
                            visible_keys(params, row + 8) - kv_first};
    const int column = tile::wmma_accumulator(lane_, 0).column;
    for_each_register<kKeyFragments>([&](int f, int r) {
      const int key = f * kWmma + tile::wmma_accumulator(0, r).column + column;
      if (key >= visible[tile::wmma_accumulator_row_slot(r)]) {
        scores[f].x[r] = -std::numeric_limits<float>::infinity();
      }
    });
  }

  // Streaming softmax: scores become probabilities, and the accumulated output is rescaled.
  __device__ __forceinline__ void softmax(Accumulator (&scores)[kKeyFragments]) {
    float row_max[2] = {max_[0], max_[1]}, reference[2], rescale[2];
    for_each_register<kKeyFragments>([&](int f, int r) {
      float& largest = row_max[tile::wmma_accumulator_row_slot(r)];
      largest = fmaxf(largest, scores[f].x[r]);
    });
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      row_max[slot] = row_reduce(row_max[slot], [](float a, float b) { return fmaxf(a, b); });
      reference[slot] = finite_reference(row_max[slot]) * scale_.log2;
      rescale[slot] = ptx::exp2_approx(max_[slot] * scale_.log2 - reference[slot]);
      sum_[slot] *= rescale[slot];
      max_[slot] = row_max[slot];
    }
    for_each_register<kKeyFragments>([&](int f, int r) {
      const int slot = tile::wmma_accumulator_row_slot(r);
      scores[f].x[r] = ptx::exp2_approx(scores[f].x[r] * scale_.log2 - reference[slot]);
      sum_[slot] += scores[f].x[r];
    });
    for_each_register<kFragments>(
        [&](int f, int r) { output_[f].x[r] *= rescale[tile::wmma_accumulator_row_slot(r)]; });
  }

  // Writes the pairs of 16 rows of kTileFragments fragments to a swizzled tile of kColumns columns.
  template <int kTileFragments, int kColumns, class Pair>
  __device__ __forceinline__ void store_pairs(__half* rows, const Pair& pair) const {
    const tile::Coord first = tile::wmma_accumulator(lane_, 0);
    const int offset = tile::swizzle_offset<2 * kColumns>(first.row, first.column);
    for_each_register<kTileFragments>([&](int f, int r) {
      if (r % 2 != 0) return;
      const tile::Coord step = tile::wmma_accumulator(0, r);  // from the lane's first element
      const int at = (offset ^ (f * kWmma + step.column)) + step.row * kColumns;
      *reinterpret_cast<__half2*>(rows + at) = pair(f, r);
    });
  }

  __device__ __forceinline__ void store_probabilities(
      const Accumulator (&probabilities)[kKeyFragments]) const {
    store_pairs<kKeyFragments, kBlockKv>(strip_, [&](int f, int r) {
      return __floats2half2_rn(probabilities[f].x[r], probabilities[f].x[r + 1]);
    });
  }

  // O += P V.
  __device__ __forceinline__ void accumulate(const __half* values) {
    constexpr int kUnroll = kHeadDim == 64 ? kKeyFragments : 1;  // registers
#pragma unroll kUnroll
    for (int j = 0; j < kBlockKv; j += kWmma) {
      RowMajorA p;
      load_swizzled<kStripBytes>(p, strip_, 0, j, lane_);
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        RowMajorB v;
        load_swizzled<kRowBytes>(v, values, j, f * kWmma, lane_);
        nvcuda::wmma::mma_sync(output_[f], p, v, output_[f]);
      }
    }
  }

  // O += P V for a tile of V with a NaN or Inf that only
  // some rows may see: each row stops after its own keys.
  __device__ __forceinline__ void accumulate_by_scalar(const RungParams& params,
                                                       const __half* values, int kv_first) {
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      nvcuda::wmma::store_matrix_sync(scratch_, output_[f], kWmma, nvcuda::wmma::mem_row_major);
      __syncwarp();
#pragma unroll 1
      for (int e = lane_; e < kWmma * kWmma; e += kWarpSize) {
        const int row = e / kWmma, column = f * kWmma + e % kWmma;
        const int keys = min(visible_keys(params, first_row_ + row) - kv_first, kBlockKv);
#pragma unroll 1
        for (int j = 0; j < keys; ++j) {
          scratch_[e] += __half2float(strip_[tile::swizzle_offset<kStripBytes>(row, j)]) *
                         __half2float(values[tile::swizzle_offset<kRowBytes>(j, column)]);
        }
      }
      __syncwarp();
      nvcuda::wmma::load_matrix_sync(output_[f], scratch_, kWmma, nvcuda::wmma::mem_row_major);
      __syncwarp();
    }
  }

  int lane_, first_row_ = 0;
  __half *queries_, *strip_;
  float* scratch_;
  PositiveScale scale_{};
  RowMajorA query_registers_[kQueriesInRegisters ? kFragments : 1];
  Accumulator output_[kFragments];
  float max_[2], sum_[2];  // of the lane's two rows; the sum is the lane's part
};

}  // namespace flashcore::cuda::ladder

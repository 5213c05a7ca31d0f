// Turns a consumer's accumulators into O and LSE.
//
// Each warp stores its own 16 rows. They are staged in Q's slot, from which the copy engine stores them.
// With a single slot, the next tile's Q is already arriving there, and rows are stored from registers.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/large_reference.hpp"
#include "cuda/forward_sm90/throughput/consumer.cuh"
#include "cuda/forward_sm90/throughput/exact_rows.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// The end of one of a lane's two rows: O *= factor.
struct RowEnd {
  float factor, lse;
};

// `sum` is the whole row's; in_use: the row is a query. If the sink outweighs everything
// else, the LSE is the sink itself: in units of log2, the largest sinks overflow fp32.
__device__ __forceinline__ RowEnd end_row(float sum, float reference, float sink, bool in_use) {
  RowEnd end{0, sink};
  if (!in_use || sum == 0) return end;  // empty; a NaN sum is not
  const float sink_log2 = fminf(sink * kLog2E, std::numeric_limits<float>::max());
  const float top = fmaxf(reference, sink_log2);
  const float factor = ptx::exp2_approx(reference - top);
  const float all = sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx(sink_log2 - top));
  end.factor = __fdividef(factor, all);
  if (factor != 0) end.lse = (top + __log2f(all)) * kLn2;
  return end;
}

// Completes the sums of each lane's two rows and writes their LSE.
template <class S>
__device__ __forceinline__ void end_rows(const Params& p, Consumer<S>& c, const TaskInfo& task,
                                         RowEnd (&ends)[2]) {
  const float sink = sink_of(p, task.head);
  if (!(sink < -kNoKey)) c.reference[0] = c.reference[1] = sink;  // see large_reference.hpp
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int row = c.row() + 8 * slot;
    const int query = task.first_query + row;
    ends[slot] =
        end_row(attention::quad_sum(c.sum[slot]), c.reference[slot], sink, query < task.len_q);
    if (p.lse != nullptr && c.lane() % 4 == 0 && query < task.rows_q) {
      p.lse[task.batch * p.lse_batch + task.head * p.lse_head + (task.q_row + row) * p.lse_row] =
          ends[slot].lse;
    }
  }
}

// A lane's outputs of row `slot`, two columns per word, and whether they are right: the
// outputs are finite or the row's sum is NaN, and the row's reference is small enough.
template <class S>
struct PackedRow {
  uint32_t word[S::kOutParts][S::kOutProducts];
  bool right;
};

template <class S>
__device__ __forceinline__ PackedRow<S> pack_row(const Consumer<S>& c, int slot, float factor) {
  using Element = typename S::Element;
  PackedRow<S> row;
  uint32_t zero = 0;
#pragma unroll
  for (int part = 0; part < S::kOutParts; ++part) {
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
      const auto& o = c.o[part][n];
      row.word[part][n] =
          Element::pack(fmaf(o[2 * slot], factor, 0.0F), fmaf(o[2 * slot + 1], factor, 0.0F));
      zero = Element::add_zero_times(row.word[part][n], zero);
    }
  }
  row.right =
      (zero == 0 || factor != factor) && fabsf(c.reference[slot]) < attention::kLargestReference;
  // A NaN may be of a pair that a bias of -inf removes.
  if constexpr (S::kOptions) row.right = row.right && zero == 0;
  return row;
}

// Stores from registers. A quad has 16 neighbouring columns of a row in two
// products, each lane 2 + 2 of them: lanes 2 i and 2 i + 1 exchange values, so
// that each lane stores four neighbours, and the quad whole sectors of 32 bytes.
//
//   lane      0         1         2         3
//   has       0,1 8,9   2,3 a,b   4,5 c,d   6,7 e,f
//   stores    0 .. 3    8 .. b    4 .. 7    c .. f
template <class S>
__device__ __forceinline__ void store_directly(const Params& p, const TaskInfo& task,
                                               const Consumer<S>& c, int slot,
                                               const PackedRow<S>& packed) {
  const bool odd = c.lane() % 2 != 0;
  const int column = 2 * (c.lane() % 4) + (odd ? 6 : 0);
  const int row = c.row() + 8 * slot;
  const bool exists = row < task.rows_q - task.first_query;
  uint16_t* const out = output_row(p, task, row) + column;
#pragma unroll
  for (int part = 0; part < S::kOutParts; ++part) {
#pragma unroll
    for (int n = 0; n < S::kOutProducts; n += 2) {
      const uint32_t first = packed.word[part][n], second = packed.word[part][n + 1];
      const uint32_t got = __shfl_xor_sync(0xffffffffU, odd ? first : second, 1);
      const int begin = 8 * (part * S::kOutProducts + n);
      if (exists && begin + column < p.head_dim_v) {  // head_dim_v is a multiple of 8
        *reinterpret_cast<uint2*>(out + begin) =
            odd ? make_uint2(got, second) : make_uint2(first, got);
      }
    }
  }
}

// Stores through the warp's rows of Q, which nothing reads any more: the copy
// engine stores them while the warp goes on. If the tile extends past its sequence,
// the next rows may be another's, and the warp itself stores the rows that exist.
template <class S>
__device__ __forceinline__ void store_staged(const CUtensorMap& map, const Params& p,
                                             const TaskInfo& task, const Consumer<S>& c,
                                             const PackedRow<S> (&packed)[2]) {
  using Tile = typename S::QTile;
  const int lane = c.lane(), first = 16 * c.warp();
  const uint32_t tile = c.q_tile();
#pragma unroll
  for (int n = 0; n < S::kOutProducts; n += 2) {
    ptx::stmatrix_x4(tile + Tile::chunk_offset(first + lane % 16, n + lane / 16),
                     packed[0].word[0][n], packed[1].word[0][n], packed[0].word[0][n + 1],
                     packed[1].word[0][n + 1]);
  }
  ptx::fence_proxy_async();
  __syncwarp();
  const int rows = task.rows_q - task.first_query - c.first_row();
  if (ptx::uniform(rows >= kWarpgroupRows) != 0) {
    if (lane == 0) {
#pragma unroll
      for (int panel = 0; panel < S::VTile::kPanels; ++panel) {
        ptx::tma_store_4d(&map, tile + panel * Tile::kPanelBytes + first * Tile::kPanelRowBytes,
                          panel * Tile::kPanelColumns, task.q_row + c.first_row() + first,
                          task.head, task.batch);
      }
      ptx::tma_store_commit();
    }
  } else {
    constexpr int kRowChunks = S::kConfig.head_dim_v / 8;
#pragma unroll
    for (int i = 0; i < 16 * kRowChunks / 32; ++i) {
      const int row = first + (lane + 32 * i) / kRowChunks, chunk = (lane + 32 * i) % kRowChunks;
      const uint4 values = ptx::load_shared_x4(tile + Tile::chunk_offset(row, chunk));
      if (row < rows && 8 * chunk < p.head_dim_v) {  // head_dim_v is a multiple of 8
        *reinterpret_cast<uint4*>(output_row(p, task, c.first_row() + row) + 8 * chunk) = values;
      }
    }
  }
}

// Normalises and stores O of this warp's rows. Returns false if the result
// is wrong: an output is not finite although its row's sum is not NaN.
template <class S>
__device__ __forceinline__ bool store_rows(const CUtensorMap& map, const Params& p,
                                           const TaskInfo& task, const Consumer<S>& c,
                                           const RowEnd (&ends)[2]) {
  if constexpr (S::kStagesOutputs) {
    const PackedRow<S> packed[2] = {pack_row<S>(c, 0, ends[0].factor),
                                    pack_row<S>(c, 1, ends[1].factor)};
    const bool right = __all_sync(0xffffffffU, packed[0].right && packed[1].right);
    if (right) store_staged<S>(map, p, task, c, packed);
    return right;
  } else {
    bool right = true;
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const PackedRow<S> packed = pack_row<S>(c, slot, ends[slot].factor);
      store_directly<S>(p, task, c, slot, packed);
      right = right && packed.right;
    }
    return __all_sync(0xffffffffU, right);
  }
}

}  // namespace flashcore::cuda::forward_sm90::throughput

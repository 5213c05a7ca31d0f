// From a consumer's accumulators to O and LSE.
//
// O goes through shared memory, where the consumer's Q was, and out by TMA. Rows past the end of a
// packed entry are the next entry's: such a tile is stored by its threads, row by row.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/consumer.cuh"
#include "cuda/forward_sm90/exact_rows.cuh"
#include "cuda/forward_sm90/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_sm90 {

// What one of a lane's two rows needs: O *= factor, or O = 0 where it is empty.
struct RowEnd {
  float factor, lse;
  bool empty;
};

// `sum` over the whole row; in_use: the row is a query.
__device__ __forceinline__ RowEnd end_row(float sum, float reference, float sink, bool in_use) {
  RowEnd end{0, sink * kLn2, !in_use || sum == 0};  // a NaN sum is not empty
  if (end.empty) return end;
  const float top = fmaxf(reference, sink);
  const float factor = ptx::exp2_approx(reference - top);
  const float all = sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx(sink - top));
  end.factor = __fdividef(factor, all);
  end.lse = (top + __log2f(all)) * kLn2;
  return end;
}

// The two rows of each lane: their sums completed, LSE written.
template <class S>
__device__ __forceinline__ void end_rows(const Params& p, const Consumer<S>& c, RowEnd (&ends)[2]) {
  const TaskInfo& task = c.task();
  const float sink = sink_log2(p, task.head);
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

// Normalises O. False when an output is not finite though its row's sum is no NaN.
template <class S>
__device__ __forceinline__ bool normalise(Consumer<S>& c, const RowEnd (&ends)[2]) {
  bool right = true;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    float zero = 0;  // NaN as soon as one output is not finite
#pragma unroll
    for (int part = 0; part < S::kOutParts; ++part) {
#pragma unroll
      for (int n = 0; n < S::kOutProducts; ++n) {
#pragma unroll
        for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
          float& x = c.o[part][n][e];
          zero = fmaf(x, 0.0F, zero);
          x = ends[slot].empty ? 0.0F : x * ends[slot].factor;
        }
      }
    }
    const bool sum_is_number = ends[slot].factor == ends[slot].factor;
    right = right && (zero == 0 || ends[slot].empty || !sum_is_number);
  }
  return right;
}

// O -> shared memory, in the layout of the Q tile that it replaces.
template <class S>
__device__ __forceinline__ void stage_outputs(const Consumer<S>& c, uint32_t tile) {
  using Tile = typename S::OTile;
  using Element = typename S::Element;
  // Read anew: addresses made from c.lane would be held over the main loop.
  const int thread = ptx::thread_index() % kWarpgroupThreads;
  const int row = thread / 32 * 16 + thread % 16;
#pragma unroll
  for (int part = 0; part < S::kOutParts; ++part) {
#pragma unroll
    for (int n = 0; n < S::kOutProducts; n += 2) {
      const int chunk = part * S::kOutProducts + n + thread % 32 / 16;
      const auto& a = c.o[part][n];
      const auto& b = c.o[part][n + 1];
      ptx::stmatrix_x4(tile + Tile::chunk_offset(row, chunk), Element::pack(a[0], a[1]),
                       Element::pack(a[2], a[3]), Element::pack(b[0], b[1]),
                       Element::pack(b[2], b[3]));
    }
  }
}

// The rows of this thread, two columns at a time; `rows` of the tile exist.
template <class S>
__device__ __forceinline__ void store_directly(const Params& p, const TaskInfo& task,
                                               const Consumer<S>& c, int rows) {
  using Element = typename S::Element;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int row = c.row() + 8 * slot;
    if (row >= rows) continue;
    uint16_t* const out = output_row(p, task, row);
#pragma unroll
    for (int part = 0; part < S::kOutParts; ++part) {
#pragma unroll
      for (int n = 0; n < S::kOutProducts; ++n) {
        const int column = 8 * (part * S::kOutProducts + n) + 2 * (c.lane() % 4);
        if (column >= p.head_dim_v) continue;  // head_dim_v is a multiple of 8
        *reinterpret_cast<uint32_t*>(out + column) =
            Element::pack(c.o[part][n][2 * slot], c.o[part][n][2 * slot + 1]);
      }
    }
  }
}

// Writes O of this consumer's rows. On return its warps are done with the task and with Q's place.
template <class S>
__device__ __forceinline__ void store_outputs(const Maps& maps, const Params& p, Consumer<S>& c,
                                              const RowEnd (&ends)[2]) {
  const TaskInfo& task = c.task();
  const uint32_t tile = c.q_tile();
  const int barrier = kEpilogueBarrier + c.group;
  const int first = c.group * kWarpgroupRows;
  const int rows = task.rows_q - task.first_query;  // of the whole tile
  const bool right = normalise<S>(c, ends);
  // Also: all four warps are done with Q.
  if (ptx::named_barrier_or(barrier, kWarpgroupThreads, !right)) {
    compute_rows_exactly<S>(p, task, first + 16 * c.warp(), c.lane());
    ptx::named_barrier_sync(barrier, kWarpgroupThreads);
    return;
  }
  const bool mine_alone = p.cu_seqlens_q.data == nullptr || rows >= first + kWarpgroupRows;
  if (!mine_alone) {
    store_directly<S>(p, task, c, rows);
    ptx::named_barrier_sync(barrier, kWarpgroupThreads);
    return;
  }
  stage_outputs<S>(c, tile);
  ptx::fence_proxy_async();
  const int batch = task.batch, head = task.head, row = task.q_row + first;
  ptx::named_barrier_sync(barrier, kWarpgroupThreads);
  if (c.thread_anew() % kWarpgroupThreads == 0 && rows > first) {
#pragma unroll
    for (int panel = 0; panel < S::OTile::kPanels; ++panel) {
      ptx::tma_store_4d(&maps.o, tile + panel * S::OTile::kPanelBytes,
                        panel * S::OTile::kPanelColumns, row, head, batch);
    }
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
  }
}

}  // namespace flashcore::cuda::forward_sm90

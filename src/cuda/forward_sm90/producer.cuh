// The producer: one thread, which finds tiles and copies what the consumers need, ahead of them.
//
//   a tile   K[last]  task, Q  K[last-1] V[last]  K[last-2] V[last-1]  ...  V[first]
//
// in the order in which consumers ask; each copy waits until its slot is free.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/shape.cuh"
#include "cuda/forward_sm90/task.cuh"
#include "cuda/forward_sm90/tile_counter.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_sm90 {

// All panels of a tile whose first row is `row`.
template <class Tile>
__device__ __forceinline__ void load_tile(const unsigned char* shared, const CUtensorMap& map,
                                          const uint64_t& full, int row, int head, int batch) {
  const uint32_t barrier = ptx::shared_address(&full), to = ptx::shared_address(shared);
  ptx::mbarrier_arrive_expect(barrier, Tile::kBytes);
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel) {
    ptx::tma_load_4d(to + panel * Tile::kPanelBytes, &map, barrier, panel * Tile::kPanelColumns,
                     row, head, batch);
  }
}

template <class S>
struct Producer {
  typename S::Shared& smem;
  const Maps& maps;
  const Params& p;
  RingPosition<S::kQSlots> q_at;  // tasks go round with it, in slots of their own
  RingPosition<kStages> k_at, v_at;

  __device__ __forceinline__ void load_k(int row, int head, int batch) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.k_empty[k_at.slot()]), k_at.parity() ^ 1);
    load_tile<typename S::KTile>(smem.k[k_at.slot()], maps.k, smem.k_full[k_at.slot()], row, head,
                                 batch);
    k_at.next();
  }

  __device__ __forceinline__ void load_v(int row, int head, int batch) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.v_empty[v_at.slot()]), v_at.parity() ^ 1);
    load_tile<typename S::VTile>(smem.v[v_at.slot()], maps.v, smem.v_full[v_at.slot()], row, head,
                                 batch);
    v_at.next();
  }

  __device__ __forceinline__ void wait_for_q_slot() {
#pragma unroll
    for (int w = 0; w < S::kConsumers; ++w) {
      ptx::mbarrier_wait(ptx::shared_address(&smem.q_empty[q_at.slot()][w]), q_at.parity() ^ 1);
    }
  }

  __device__ __forceinline__ void load_q(const TaskInfo& task) {
    wait_for_q_slot();
    smem.task[q_at.passed % S::kTaskSlots] = task;  // made visible by the arrivals at q_full
#pragma unroll
    for (int w = 0; w < S::kConsumers; ++w) {
      load_tile<typename S::QTile>(smem.q[q_at.slot()][w], maps.q, smem.q_full[q_at.slot()][w],
                                   task.q_row + w * kWarpgroupRows, task.head, task.batch);
    }
    q_at.next();
  }

  // No more tiles.
  __device__ __forceinline__ void finish() {
    wait_for_q_slot();
    smem.task[q_at.passed % S::kTaskSlots].rows_q = TaskInfo::kNoMore;
#pragma unroll
    for (int w = 0; w < S::kConsumers; ++w) {
      ptx::mbarrier_arrive(ptx::shared_address(&smem.q_full[q_at.slot()][w]));
    }
  }

  // Copies what tile `tile` needs.
  __device__ __forceinline__ void produce(uint32_t tile) {
    TaskInfo task = find_task(p, tile, S::kConfig.block_q());
    if (task.first_query >= task.rows_q) return;  // a packed entry is shorter
    const BlockRange range = block_range(task.limits, task.len_q, task.first_query,
                                         task.first_query + S::kConfig.block_q(), S::kBlockKv);
    task.begin = range.begin, task.end = range.end;
    const int head = task.head / (p.heads_q / p.heads_kv), batch = task.batch;
    const auto row = [first = task.kv_row](int block) { return first + block * S::kBlockKv; };
    int block = range.end - 1;
    if (!range.empty()) load_k(row(block), head, batch);
    load_q(task);
    for (; block >= range.begin && !range.empty(); --block) {
      if (block > range.begin) load_k(row(block - 1), head, batch);
      load_v(row(block), head, batch);
    }
  }

  __device__ __forceinline__ void run() {
    const uint32_t tiles = p.order.size();
    const TileCounter counter{p.launch_name, tiles};
    if (p.counter == nullptr) {
      for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) produce(tile);
    } else {
      claim(p.counter, counter);
      for (uint32_t tile = blockIdx.x; tile < tiles;) {
        const unsigned long long found = ask(p.counter);  // of the next tile, ahead of its use
        produce(tile);
        tile = answer(p.counter, counter, gridDim.x, found);
      }
    }
    finish();
  }
};

}  // namespace flashcore::cuda::forward_sm90

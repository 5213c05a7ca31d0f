// The producer: one thread, which finds tiles and copies what the consumers need, ahead of them.
//
//   a tile   ... K[1] V[2] | K'[last] V[1] ... : the next tile's first K comes before the last V
//
// Copies go out in the order in which consumers ask; each waits until its slot is free. Q and the
// task of the next tile follow the tile's third K, where the consumers must be done with the tile
// before, so that its place is free; with one place for Q, Q follows the tile's last V.
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
  RingPosition<S::kStages> k_at, v_at;

  // ---- which tile is next

  // Without a counter: the tile at hand. With one: what it said when it was asked, ahead of use.
  uint32_t ticket;

  __device__ __forceinline__ void ask_ahead() {
    if (p.counter != nullptr) ticket = TileCounter::handed_out(ask(p.counter));
  }
  __device__ __forceinline__ uint32_t next_tile() {
    if (p.counter == nullptr) return ticket += gridDim.x;
    return answer(p.counter, {p.launch_name, p.order.size()}, gridDim.x, ticket);
  }

  // Finds the next tile, from number `taken` on, and writes its task, or that there is none, for
  // the consumers: they see it after the arrival at q_full.
  __device__ __forceinline__ const TaskInfo* find(uint32_t taken) {
    TaskInfo& slot = smem.task[q_at.passed % S::kTaskSlots];
    while (taken < p.order.size()) {
      TaskInfo task = find_task(p, taken, S::kConfig.block_q());
      if (task.first_query < task.rows_q) {
        const BlockRange range = block_range(task.limits, task.len_q, task.first_query,
                                             task.first_query + S::kConfig.block_q(), S::kBlockKv);
        task.begin = range.begin, task.end = range.end;
        slot = task;
#pragma unroll 1
        for (int w = 0; w < S::kConsumers; ++w) {
          const int first = task.first_query + w * kWarpgroupRows;
          slot.seen[w] =
              block_range(task.limits, task.len_q, first, first + kWarpgroupRows, S::kBlockKv);
        }
        return &slot;
      }
      ask_ahead();  // a packed entry is shorter
      taken = next_tile();
    }
    slot.rows_q = TaskInfo::kNoMore;
    slot.begin = slot.end = 0;
    return &slot;
  }

  // ---- copies

  // Q of a task, or word that there is none.
  __device__ __forceinline__ void load_q(const TaskInfo& task) {
#pragma unroll 1
    for (int w = 0; w < S::kConsumers; ++w) {
      ptx::mbarrier_wait(ptx::shared_address(&smem.q_empty[q_at.slot()][w]), q_at.parity() ^ 1);
      if (task.is_tile()) {
        load_tile<typename S::QTile>(smem.q[q_at.slot()][w], maps.q, smem.q_full[q_at.slot()][w],
                                     task.q_row + w * kWarpgroupRows, task.head, task.batch);
      } else {
        ptx::mbarrier_arrive(ptx::shared_address(&smem.q_full[q_at.slot()][w]));
      }
    }
    q_at.next();
  }
  __device__ __forceinline__ void load_k(const TaskInfo& task, int block) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.k_empty[k_at.slot()]), k_at.parity() ^ 1);
    load_tile<typename S::KTile>(smem.k[k_at.slot()], maps.k, smem.k_full[k_at.slot()],
                                 task.kv_row + block * S::kBlockKv, task.kv_head, task.batch);
    k_at.next();
  }
  __device__ __forceinline__ void load_v(const TaskInfo& task, int block) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.v_empty[v_at.slot()]), v_at.parity() ^ 1);
    load_tile<typename S::VTile>(smem.v[v_at.slot()], maps.v, smem.v_full[v_at.slot()],
                                 task.kv_row + block * S::kBlockKv, task.kv_head, task.batch);
    v_at.next();
  }
  __device__ __forceinline__ void load_first_k(const TaskInfo& task) {
    if (task.begin < task.end) load_k(task, task.end - 1);
  }

  __device__ __forceinline__ void run() {
    ticket = blockIdx.x;
    if (p.counter != nullptr) claim(p.counter, {p.launch_name, p.order.size()});
    const TaskInfo* next = find(blockIdx.x);
    load_first_k(*next);
    load_q(*next);
    while (next->is_tile()) {
      const TaskInfo& task = *next;
      ask_ahead();
      next = nullptr;
      for (int left = task.end - task.begin - 1; left >= 0; --left) {
        if (left > 0) {
          load_k(task, task.begin + left - 1);
        } else if (next != nullptr) {
          load_first_k(*next);
        }
        load_v(task, task.begin + left);
        if (left > 0 && left == task.end - task.begin - 2) {  // behind the third K
          next = find(next_tile());
          if constexpr (S::kQSlots > 1) load_q(*next);
        }
      }
      const bool short_tile = next == nullptr;
      if (short_tile) {
        next = find(next_tile());
        load_first_k(*next);
      }
      if (short_tile || S::kQSlots == 1) load_q(*next);
    }
  }
};

}  // namespace flashcore::cuda::forward_sm90

// The producer: one thread, which describes steps and copies their inputs, ahead of the consumers.
//
//   K Q[0] V dO[0] | dO[1] Q[1] | dO[2] Q[2] | ...
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/shape.cuh"
#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

template <class S>
struct Producer {
  using Shared = typename S::Shared;
  Shared& smem;
  const Maps& maps;
  const Params& p;
  const typename S::OwnTask& task;
  Walk<S> walk;  // to the next step
  uint32_t sums_parity = 0;

  // Copies all panels of a tile.
  template <class Tile>
  __device__ __forceinline__ void load_tile(const unsigned char* shared, const CUtensorMap& map,
                                            uint32_t barrier, int row, int of_head) const {
    const uint32_t to = ptx::shared_address(shared);
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      ptx::tma_load_4d(to + panel * Tile::kPanelBytes, &map, barrier, panel * Tile::kPanelColumns,
                       row, of_head, task.batch);
    }
  }

  __device__ __forceinline__ void describe_turn(Step& step) {
    const auto turn = walk.turn();
    const int first = walk.block * S::kBlockQ;
    step.turn = turn.number;
    step.is_last = turn.is_last ? 1 : 0;
    // Rows past a sequence's length are 0, or another sequence's.
    step.queries = (S::kOptions && is_packed(p) ? rows_of(p, task).len_q : p.seqlen_q) - first;
    step.batch = task.batch;
    step.head = walk.head;
    step.row = rows_of(p, task).q_row + first;
    step.sums_parity = sums_parity;
    if (turn.is_last && turn.number != 0) sums_parity ^= 1;
  }

  // Copies Q of step `number`, with its row statistics and description.
  __device__ __forceinline__ void load_q(int number) {
    const int stage = number % kStages;
    const int first_key = task.tile * kBlockKeys;
    Step& step = smem.step[number % kSteps];
    step.first = walk.block * S::kBlockQ - first_key;
    step.keys = rows_of(p, task).limits.len_kv - first_key;
    step.masked = task.range.needs_mask(walk.block) ? 1 : 0;
    step.block = walk.number();
    if constexpr (S::kDeterministic) {
      describe_turn(step);
      ptx::mbarrier_arrive(ptx::shared_address(&smem.described[number % kSteps]));
    }
    const uint32_t barrier = ptx::shared_address(&smem.q_full[stage]);
    ptx::mbarrier_arrive_expect(barrier, S::QTile::kBytes + S::kRowStatsBytes);
    load_tile<typename S::QTile>(smem.q[stage], maps.q, barrier,
                                 rows_of(p, task).q_row + walk.block * S::kBlockQ, walk.head);
    ptx::bulk_load(ptx::shared_address(smem.row_stats[stage]),
                   p.row_stats + int64_t{walk.number()} * (2 * S::kBlockQ), S::kRowStatsBytes,
                   barrier);
  }
  __device__ __forceinline__ void load_d_o(int number) const {
    const int stage = number % kStages;
    const uint32_t barrier = ptx::shared_address(&smem.o_full[stage]);
    ptx::mbarrier_arrive_expect(barrier, S::QTile::kBytes);
    load_tile<typename S::QTile>(smem.d_o[stage], maps.d_o, barrier,
                                 rows_of(p, task).q_row + walk.block * S::kBlockQ, walk.head);
  }

  __device__ __forceinline__ void run() {
    const uint32_t kv_full = ptx::shared_address(&smem.kv_full);
    const int first_key = rows_of(p, task).kv_row + task.tile * kBlockKeys;
    ptx::mbarrier_arrive_expect(kv_full, 2 * S::KTile::kBytes);
    load_tile<typename S::KTile>(smem.k, maps.k, kv_full, first_key, task.kv_head);
    load_q(0);
    load_tile<typename S::KTile>(smem.v, maps.v, kv_full, first_key, task.kv_head);
    load_d_o(0);
#pragma unroll 1
    for (int number = 1; number < task.steps; ++number) {
      const uint32_t stage = number % kStages, parity = (number / kStages - 1) & 1;
      walk.advance();
      ptx::mbarrier_wait(ptx::shared_address(&smem.o_empty[stage]), parity);
      load_d_o(number);
      ptx::mbarrier_wait(ptx::shared_address(&smem.q_empty[stage]), parity);
      load_q(number);
    }
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput

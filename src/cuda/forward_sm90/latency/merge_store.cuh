// The end of a merge: the addresses that a lane stores to, and the stores of O.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/common/softmax.cuh"
#include "cuda/forward_sm90/common/task.cuh"
#include "cuda/forward_sm90/latency/shape.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/sync.cuh"

namespace flashcore::cuda::forward_sm90::latency {

// Computed before the keys have arrived, when there is time for it.
struct Places {
  uint16_t* o;  // the first of the lane's outputs
  float* lse;   // null: this lane stores none
  int query;    // counted in the sequence
  int columns;  // columns of O from that output on; 0 or less if nothing is stored
  bool in_use;  // the query is in use
};

template <class S>
__device__ __forceinline__ Places find_places(const Params& p, const Task& task, int rank,
                                              int group, int warp, int lane) {
  Places at;
  at.query = task.first_query + 16 * warp + 8 * group + lane / 4;
  at.in_use = at.query < task.len_q;
  const bool exists = at.query < task.rows_q;
  const int column = rank * S::kStoredColumns + 8 * (lane % 4);
  const int64_t row = task.q_row + at.query;
  at.columns = exists ? p.head_dim_v - column : 0;
  at.o = static_cast<uint16_t*>(p.o) +
         (task.batch * p.o_batch + task.head * p.o_head + row * p.o_row + column);
  at.lse = nullptr;
  if (p.lse != nullptr && rank == 0 && lane % 4 == 0 && exists) {
    at.lse = p.lse + (task.batch * p.lse_batch + task.head * p.lse_head + row * p.lse_row);
  }
  ptx::pin(at.o, at.lse, at.columns);  // here, and not later
  return at;
}

// The slot of a lane's outgoing data. Eight lanes of 16 bytes, sent as one packet,
// are adjacent; a reader of one word per lane of a quad, lane after lane, finds eight
// rows in eight different bank groups. slot_of(row, q) is slot_of(row, 0) ^ 2 * q.
constexpr int slot_of(int row, int quarter) {
  return 4 * (row & 6) + ((2 * quarter + row % 2) ^ (row & 6));
}

// The end of a merge (merge.cuh): its waits and its stores.
template <class S>
struct MergeBase {
  static constexpr int kPieces = S::kPieces;
  typename S::Shared& smem;
  const Params& p;
  const Task& task;
  const Places& places;
  const int rank, group, warp, lane;

  uint32_t words[kPieces][4];  // of O: a lane finishes eight neighbouring columns of each piece
  bool finite;                 // everything that this lane finishes is finite

  // Waits for the warp of the block's other warpgroup that has the same rows.
  __device__ __forceinline__ void meet() const {
    __syncwarp();
    ptx::named_barrier_sync(kPair + warp, 2 * 32);
  }
  __device__ __forceinline__ void wait_for_rows() const {
    ptx::mbarrier_wait(ptx::shared_address(&smem.rows_received[group]), 0);
  }
  __device__ __forceinline__ void wait_for_outputs() const {
    ptx::mbarrier_wait(ptx::shared_address(&smem.received[group][warp]), 0);
  }

  __device__ __forceinline__ void store_lse(float lse) const {
    if (places.lse != nullptr) *places.lse = places.in_use ? lse : kNoKey;
  }
  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const uint32_t(&four)[4] = words[piece];
      uint4 eight = make_uint4(four[0], four[1], four[2], four[3]);
      if (!places.in_use) eight = make_uint4(0, 0, 0, 0);
      if (places.columns > 32 * piece) {
        *reinterpret_cast<uint4*>(places.o + 32 * piece) = eight;
      }
    }
    const uint32_t lanes = __ballot_sync(0xffffffffU, places.in_use && !finite);
    if (lanes != 0) [[unlikely]] {
      __syncwarp();  // earlier stores are overwritten
      store_exactly<typename S::Element, S::kTileBounds == TileBounds::checked, 4>(
          p, lanes, task.first_query + 16 * warp + 8 * group, rank * S::kStoredColumns, kPieces);
    }
  }
};

}  // namespace flashcore::cuda::forward_sm90::latency

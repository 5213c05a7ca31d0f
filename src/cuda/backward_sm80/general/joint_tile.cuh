// The tiles of dQ's sums in the workspace.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/backward_sm80/general/params.hpp"

namespace flashcore::cuda::backward_sm80::general {

// Returns the index of a query tile among the sums of dQ.
__device__ __forceinline__ int64_t joint_tile(const Params& p, const attention::Entry& entry,
                                              int batch, int head, int block_q, int tile) {
  if (p.cu_seqlens_q.data != nullptr) {
    return head * p.joint.head_tiles + attention::first_slot(entry.q_row, batch, block_q) + tile;
  }
  return (int64_t{batch} * p.heads_q + head) * p.joint.head_tiles + tile;
}

}  // namespace flashcore::cuda::backward_sm80::general

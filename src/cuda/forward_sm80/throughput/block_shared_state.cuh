// Block state in shared memory, for which the main loop has no registers.
#pragma once

#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_sm80/throughput/key_turns.hpp"
#include "cuda/forward_sm80/throughput/score_lines.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/forward_sm80/throughput/tile_loader.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// The tiles of a loop: the block's end at `end`, and [hot_begin, hot_end) are hot for the warp.
struct LoopBounds {
  int end;
  int hot_begin, hot_end;
};

// Warp state needed only outside of hot tiles, and loop bounds if registers are scarce.
struct WarpSharedState {
  LoopBounds bounds;
  attention::TileRange slices;
  LineContext context;   // of Features::scores
  float references[32];  // of the warp's rows, during hot tiles, which use all registers
  int hot_turn;          // no tile before it is hot; with Features::scores, see key_turns.hpp
  bool far;              // a score of the first tiles is too near the cap for score_lines
  bool wrong;            // a score of a later tile was
};

// Block state. One per kernel, shared by all of its passes.
template <int kWarps>
struct BlockSharedState {
  Task task;
  attention::BandLimits limits;
  KvOrigin origin;  // with Features::scores, as are the turns
  KeyTurns turns;
  WarpSharedState warps[kWarps];
};
template <int kWarps>
__device__ __forceinline__ BlockSharedState<kWarps>& block_shared_state() {
  // 1 KB with the block's reserved memory: two of head dimension 64 share the 100 KB of sm_89.
  static_assert(sizeof(BlockSharedState<kWarps>) <= 1024);
  return ptx::static_shared<BlockSharedState<kWarps>>();
}

// Writes this lane's references to where score_lines read them, and reads them back.
template <Config kConfig>
__device__ __forceinline__ void put_references(WarpSharedState& state, const WarpState<kConfig>& w,
                                               int lane) {
  __syncwarp();  // the four lanes of a row have read it
#pragma unroll
  for (int slot = 0; slot < 2 * kConfig.row_groups; ++slot) {
    state.references[8 * slot + lane / 4] = w.reference[slot / 2][slot % 2];
  }
}
template <Config kConfig>
__device__ __forceinline__ void get_references(const WarpSharedState& state, WarpState<kConfig>& w,
                                               int lane) {
#pragma unroll
  for (int slot = 0; slot < 2 * kConfig.row_groups; ++slot) {
    w.reference[slot / 2][slot % 2] = state.references[8 * slot + lane / 4];
  }
}

// Returns the task given to attend(), which is not kept in
// registers over the main loop. A barrier has passed since then.
template <Config kConfig>
__device__ __forceinline__ const Task& block_task() {
  return block_shared_state<kConfig.warps>().task;
}

}  // namespace flashcore::cuda::forward_sm80::throughput

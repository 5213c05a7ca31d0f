// The kernel of paired.cuh: one block per query tile.
//
//   | wait K, barrier | load V -> | S, softmax, P -> | wait V, barrier | load K' -> | O += P V |
//
// The softmax is mainloop.cuh's: tiles up to the first mask-free one set the
// references, later tiles find no maximum, and a proof follows at the end. Four
// warps recompute a block without the proof, with the tile that fits 99 KB.
#pragma once

#include "cuda/forward_sm80/throughput/kernel.cuh"
#include "cuda/forward_sm80/throughput/paired.cuh"
#include "cuda/ptx/shared_variable.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// Block state that is not kept in registers over the main loop.
struct PairedSharedState {
  Task task;
  attention::BandLimits limits;
};

// Fills `w`: the warp's rows over the keys of both halves, for its columns.
template <PairedConfig kPaired, class Element>
__device__ __forceinline__ void attend_paired(const Params& p, const Task& task,
                                              unsigned char* shared, PairedSharedState& block_state,
                                              PairNumbers<kPaired>& numbers,
                                              WarpState<PairedShape<kPaired>::kWarp>& w) {
  using S = PairedShape<kPaired>;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const int first = warp / 2 * S::kWarpRows, side = warp % 2;
  const float scale = p.softmax_scale * kLog2E;

  w.clear();
  const attention::BandLimits limits = attention::band_limits(task.sequence, p.band);
  if (thread == 0) {
    block_state.task = task;
    block_state.limits = limits;
  }
  const auto len_q = static_cast<int>(task.sequence.len_q);
  const attention::TileRange block = attention::tile_range(
      limits, len_q, task.first_query, task.first_query + S::kBlockQ, S::kBlockKv);
  if (block.begin >= block.end) return;
  const int first_row = task.first_query + first;
  const attention::TileRange range =
      attention::tile_range(limits, len_q, first_row, first_row + S::kWarpRows, S::kBlockKv);

  {
    using Copy = typename S::QCopy;
    const unsigned char* const source = Copy::start(
        row_pointer<2>(p.q, task.batch, task.head, task.sequence.q_begin + task.first_query),
        2 * p.q.row, thread);
    const int64_t pass_bytes = PairedLoader<kPaired>::kPassesOfFallback * p.q_pass_bytes;
    if (p.whole_chunks && task.first_query + S::kBlockQ <= len_q) {
      Copy::whole(shared, source, pass_bytes, thread);
    } else {
      Copy::part(shared, source, pass_bytes, len_q - task.first_query, p.head_dim_qk / 8, p.q.data,
                 thread);
    }
  }
  unsigned char *const k_tile = shared + S::kKOffset, *const v_tile = shared + S::kVOffset;
  unsigned char* const p_tile = shared + S::kPOffset;
  PairedLoader<kPaired> keys(p, p.k, task, block.begin), values(p, p.v, task, block.begin);
  keys.load(p, p.k.data, p.head_dim_qk, p.k_pass_bytes, k_tile);

  PairedQueries<kPaired> q;
  q.address = ptx::shared_address(shared) + rows_first<typename S::QTile>(lane) +
              static_cast<uint32_t>(first * S::QTile::kPanelRowBytes);
  constexpr int kHalfBytes = S::kWarpKeys * S::KvTile::kPanelRowBytes;
  const uint32_t k_address = ptx::shared_address(k_tile) + columns_first<typename S::KvTile>(lane) +
                             static_cast<uint32_t>(side * kHalfBytes);
  const uint32_t v_address =
      ptx::shared_address(v_tile) + rows_first<typename S::KvTile>(lane) +
      static_cast<uint32_t>(side * S::kColumns / S::KvTile::kPanelColumns * S::KvTile::kPanelBytes);

#pragma unroll 1
  for (int tile = block.begin; tile < block.end; ++tile) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // K has landed, and nothing reads V or P of the tile before any more
    values.load(p, p.v.data, p.head_dim_v, p.v_pass_bytes, v_tile);
    if (S::kHeldSteps > 0 && tile == block.begin) q.hold();
    const bool sees = tile >= range.begin && tile < range.end;
    Probabilities<S::kGroups, S::kKeySteps> pr;
    if (tile > range.full_begin && tile < range.full_end) {
      typename S::Scores s;
      paired_qk<kPaired, Element>(s, q, k_address);
      exponentiate<S::kWarp, false>(s, w, scale);
      pack<Element>(pr, s);
      share_probabilities<kPaired>(pr, p_tile, first, side, lane);
    } else if (sees) {
      typename S::Scores s;
      paired_qk<kPaired, Element>(s, q, k_address);
      if (range.needs_mask(tile)) {
        mask_band<KeyOrder::plain>(
            s, block_state.limits,
            {block_state.task.first_query + first + lane / 4, 2 * (lane % 4)},
            tile * S::kBlockKv + side * S::kWarpKeys);
      }
      if (tile <= range.full_begin || !all_have_reference<S::kWarp>(w)) {
        raise_paired<kPaired>(s, w, scale, Element::kHeadroom, numbers, first, side, lane);
      }
      exponentiate<S::kWarp, true>(s, w, scale);
      pack<Element>(pr, s);
      share_probabilities<kPaired>(pr, p_tile, first, side, lane);
    }
    ptx::cp_async_wait<0>();
    __syncthreads();  // V has landed, P is there, and nothing reads K any more
    if (tile + 1 < block.end) keys.load(p, p.k.data, p.head_dim_qk, p.k_pass_bytes, k_tile);
    if (sees) {
      const int mine = side * kHalfBytes;
      paired_pv<kPaired, Element>(w, pr, v_address + mine);
      read_probabilities<kPaired>(pr, p_tile, first, side, lane);
      paired_pv<kPaired, Element>(w, pr, v_address + kHalfBytes - mine);
    }
  }
}

// Completes the row sums over the pair; returns false without the proof.
template <PairedConfig kPaired, class Element>
__device__ __forceinline__ bool finish_paired_sums(WarpState<PairedShape<kPaired>::kWarp>& w,
                                                   PairNumbers<kPaired>& numbers) {
  using S = PairedShape<kPaired>;
  const auto thread = ptx::thread_index();
  float others[S::kGroups][2];
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) w.sum[g][slot] = attention::quad_sum(w.sum[g][slot]);
  }
  exchange<kPaired>(numbers, w.sum, others, thread / 64 * S::kWarpRows, thread / 32 % 2,
                    thread % 32);
  bool right = true;
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float sum = w.sum[g][slot] += others[g][slot];
      right = right && row_is_right<S::kWarp, Element>(w, g, slot, sum, true);
    }
  }
  return right;
}

// Stores O, staged in Q's memory.
template <PairedConfig kPaired, class Element>
__device__ __forceinline__ void store_paired(const Params& p, const Task& task,
                                             unsigned char* shared,
                                             WarpState<PairedShape<kPaired>::kWarp>& w) {
  using S = PairedShape<kPaired>;
  using Tile = typename S::QTile;
  constexpr int kChunks = S::kColumns / 8;
  const int lane = ptx::thread_index() % 32, warp = ptx::thread_index() / 32;
  const int first = warp / 2 * S::kWarpRows, first_chunk = warp % 2 * kChunks;
  if (const auto len_q = static_cast<int>(task.sequence.len_q);
      task.first_query + S::kBlockQ > len_q) {
    clear_rows<S::kWarp>(w, task.first_query + first + lane / 4, len_q);
  }
  const float sink = p.sinks.data == nullptr ? kNoKey : p.sinks.data[task.head * p.sinks.head];
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int in_block = first + 16 * g + 8 * slot + lane / 4;
      const int row = task.first_query + in_block;
      const float lse = finish_row<S::kWarp>(w, g, slot, sink, 1.0F, kLn2);
      if (p.lse != nullptr && warp % 2 == 0 && lane % 4 == 0 && row < task.sequence.rows_q) {
        p.lse[task.batch * p.lse_batch + task.head * p.lse_head +
              (task.sequence.q_begin + row) * p.lse_row] = lse;
      }
    }
  }
  const uint32_t lane_row = Tile::chunk_offset(first + lane / 4, first_chunk) + lane % 4 * 4;
#pragma unroll
  for (int n = 0; n < kChunks; ++n) {
    unsigned char* const to = shared + Tile::template advance<1>(lane_row, n);
#pragma unroll
    for (int slot = 0; slot < 2 * S::kGroups; ++slot) {
      const float(&o)[4] = w.o[slot / 2][n];
      *reinterpret_cast<uint32_t*>(to + slot * 8 * Tile::kPanelRowBytes) =
          Element::pack(o[slot % 2 * 2], o[slot % 2 * 2 + 1]);
    }
  }
  __syncwarp();
  const int rows = static_cast<int>(task.sequence.rows_q) - task.first_query;
  copy_rows<Tile, S::kWarpRows, kChunks>(
      shared, first, first_chunk, rows, p.head_dim_v / 8,
      static_cast<unsigned char*>(p.o) + 2 * o_offset(p, task, task.first_query), 2 * p.o_row,
      lane);
}

template <class Element>
__global__ void __launch_bounds__(kPairedConfig.threads(), 1)
    paired_kernel(const __grid_constant__ Params p) {
  FLASHCORE_DYNAMIC_SHARED(shared);
  FLASHCORE_SHARED_VARIABLE(block_state, PairedSharedState);
  constexpr Config kFallback = kConfigs[kPairedConfig.fallback];
  FLASHCORE_SHARED_VARIABLE(numbers, PairNumbers<kPairedConfig>);
  WarpState<PairedShape<kPairedConfig>::kWarp> w;
  {
    const Task task = find_task<false>(p, ptx::block_index(), kPairedConfig.block_q());
    if (task.first_query >= task.sequence.rows_q) return;
    attend_paired<kPairedConfig, Element>(p, task, shared, block_state, numbers, w);
  }
  // The barrier also ends the last reads of Q.
  if (__syncthreads_or(!finish_paired_sums<kPairedConfig, Element>(w, numbers))) {
    if (ptx::thread_index() >= kFallback.threads()) return;
#pragma unroll 1
    for (int skip = 0; skip < kPairedConfig.block_q(); skip += kFallback.block_q()) {
      compute_exactly<kFallback, Element, Features::none>(p, shared, kPairedConfig.block_q(), skip);
    }
    return;
  }
  store_paired<kPairedConfig, Element>(p, block_state.task, shared, w);
}

}  // namespace flashcore::cuda::forward_sm80::throughput

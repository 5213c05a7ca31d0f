// A consumer: one warpgroup, 64 query rows, over the blocks of keys from right to left.
//
//   block n + 1: ... P |        O += P V         | ...
//   block n    :       | S = Q K^T | exp (half) |  | exp (half), P | ...
//
// The products S of one block and O += P V of the block before it start together, and
// the exponentials overlap the second product. With ping-pong, the warpgroups take turns
// at starting products, so that the softmax of one overlaps the products of another.
//
// Softmax without a running maximum: the first block sets each row's reference, and later blocks
// neither compare nor rescale. The sums of exponentials, needed anyway, prove that nothing
// overflowed. If they do not, the warp recomputes the block's scores (mma.sync, K is still in memory)
// and does an ordinary online step, which raises the reference. Exact for all data; slower for some.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/forward_sm90/throughput/consumer_options.cuh"
#include "cuda/forward_sm90/throughput/scores.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/unwritten.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// Named barriers: one for the turn and one for the end of each consumer.
inline constexpr int kTurnBarrier = 1, kFirstBarrier = 4, kMeetBarrier = 5, kEndBarrier = 8;

__device__ __forceinline__ int uniform(int x) {
  return static_cast<int>(ptx::uniform(static_cast<uint32_t>(x)));
}

// A lane's sum of a block's exponentials below this proves that P did not overflow. bf16 has the range of
// fp32: its bound leaves headroom for a row's sum and for its products.
template <class Element>
inline constexpr float kProvenSum = Element::kIsFp16 ? 0x1p15F : 0x1p30F;

template <class S>
struct Consumer {
  // The first half is the larger one if a block has an odd number of steps of 16 keys.
  static constexpr int kHalfProducts = (S::kKeyProducts + 2) / 4 * 2;
  static constexpr int kHalfKeys = 8 * kHalfProducts;
  static constexpr int kPackedRegisters = S::kKeyProducts * 2;

  typename S::Shared& smem;
  const typename S::KernelParams& params;
  uint32_t shared;  // address of smem
  uint32_t thread;  // in the block
  int group;        // which consumer: 0, 1, ..; like the ring positions, known to be uniform in
                    // a warp, so that addresses derived from it need no per-thread registers
  RingPosition<S::kQSlots> q_at;
  TileRange range;                     // of the current task: the blocks that this
                                       // warpgroup sees, counted from the first of them
  uint32_t q_begin, k_begin, v_begin;  // lower halves of the first slots' descriptors
  RingPosition<S::kStages> k_ring;     // V's ring is one block behind, like its products
  RingPosition<S::kStages> k_at;       // the same for the current block, known to be uniform

  Scores<S> s;
  Outputs<S> o;
  Probabilities<S> p;
  float sum[2];        // of this lane's exponentials
  float reference[2];  // of the exponents
  // With options: of this consumer's slot of biases; subtracted().
  [[no_unique_address]] std::conditional_t<S::kOptions, RingPosition<1>, NoTaskOptions> bias_at;
  [[no_unique_address]] std::conditional_t<S::kOptions, BlockAlibi, NoBlockAlibi> alibi;

  // Values derived from the thread index are recomputed for each use, so that the compiler does
  // not keep them in registers; where registers are scarcest, the index itself is read again.
  __device__ __forceinline__ uint32_t reload_thread_index() const {
    return S::kHoldsThread ? ptx::opaque(thread) : static_cast<uint32_t>(ptx::thread_index());
  }
  __device__ __forceinline__ int lane() const {
    return static_cast<int>(reload_thread_index() % 32);
  }
  __device__ __forceinline__ int warp() const {
    return static_cast<int>(reload_thread_index() / 32 % 4);
  }
  // The lane's row of slot 0, relative to the tile.
  __device__ __forceinline__ int row() const {
    const uint32_t t = reload_thread_index();
    return static_cast<int>(t / 32 * 16 + t % 32 / 4) - kWarpgroupRows;
  }

  // The warpgroup's first row in the tile.
  __device__ __forceinline__ int first_row() const { return group * kWarpgroupRows; }

  __device__ __forceinline__ uint32_t q_index() const {
    return q_at.slot() * S::kConsumers + static_cast<uint32_t>(group);
  }
  // Returns an address that is known to be uniform.
  __device__ __forceinline__ uint32_t q_tile() const {
    return shared + S::kQ + q_index() * S::QTile::kBytes;
  }
  __device__ __forceinline__ void begin_block() { k_at = k_ring; }
  __device__ __forceinline__ RingPosition<S::kStages> v_at() const { return {k_at.passed - 1}; }
  __device__ __forceinline__ uint32_t k_tile() const {
    return shared + S::kK + k_at.slot() * S::KTile::kBytes;
  }
  __device__ __forceinline__ void begin_descriptors() {
    // uniform() keeps the descriptors in registers: otherwise the compiler would
    // rebuild them in every block, between the turn and the first product.
    q_begin = ptx::uniform(lower_half(tile::k_major_descriptor<typename S::QTile>(
        shared + S::kQ + static_cast<uint32_t>(group) * S::QTile::kBytes, 0, 0)));
    k_begin =
        ptx::uniform(lower_half(tile::k_major_descriptor<typename S::KTile>(shared + S::kK, 0, 0)));
    v_begin = lower_half(tile::mn_major_descriptor<typename S::VTile>(shared + S::kV, 0));
    if constexpr (S::kHoldsV) v_begin = ptx::uniform(v_begin);
  }
  __device__ __forceinline__ uint32_t q_descriptor() const {
    return q_begin + q_at.slot() * (S::kConsumers * S::QTile::kBytes / 16);
  }
  __device__ __forceinline__ uint32_t k_descriptor() const {
    return k_begin + k_at.slot() * (S::KTile::kBytes / 16);
  }
  __device__ __forceinline__ uint32_t v_descriptor() const {
    return v_begin + v_at().slot() * (S::VTile::kBytes / 16);
  }
  __device__ __forceinline__ const TaskInfo& task() const {
    return smem.task[q_at.passed % S::kTaskSlots];
  }

  // Returns where the pages of the task's keys are listed.
  __device__ __forceinline__ int in_table() const {
    if constexpr (S::kPaged) return smem.pages.of[q_at.passed % S::kTaskSlots].in_table;
    return 0;
  }

  // What is subtracted from the exponents of a block.
  __device__ __forceinline__ const float (&subtracted() const)[2] {
    if constexpr (S::kOptions) {
      return alibi.base;
    } else {
      return reference;
    }
  }

  // With features, scores are already in units of log2.
  __device__ __forceinline__ float exponent_scale() const {
    if constexpr (S::kOptions) return params.exponent_scale;
    return S::kFeatures ? 1.0F : params.scale_log2;
  }

  __device__ __forceinline__ void pin_outputs() {
#pragma unroll
    for (int part = 0; part < S::kOutParts; ++part) ptx::warpgroup_pin(o[part]);
  }
  __device__ __forceinline__ void wait_for_q() const {
    ptx::mbarrier_wait_together(shared + S::kQFull + 8 * q_index(), q_at.parity());
  }
  __device__ __forceinline__ void wait_for_k() const {
    ptx::mbarrier_wait_together(shared + S::kKFull + 8 * k_at.slot(), k_at.parity());
  }
  __device__ __forceinline__ void wait_for_v() const {
    ptx::mbarrier_wait_together(shared + S::kVFull + 8 * v_at().slot(), v_at().parity());
  }
  // Called by each warp: marks the next tile's Q slot as free. With one slot, that is
  // after the warp's last read of Q; with two, when the copy engine has read the previous
  // tile's outputs from the other slot, as it has once this tile has its first scores.
  __device__ __forceinline__ void release_q() const {
    const RingPosition<S::kQSlots> next{q_at.passed + S::kQSlots - 1};
    const uint32_t barrier =  // by all lanes: see ptx::uniform
        shared + S::kQEmpty + 8 * (next.slot() * S::kConsumers + static_cast<uint32_t>(group));
    __syncwarp();
    if (lane() == 0) {
      if constexpr (S::kStagesOutputs) ptx::tma_store_wait_read<0>();
      ptx::mbarrier_arrive(barrier);
    }
  }
  // Called by each warp. K's ring advances after the last use of k_at.
  __device__ __forceinline__ void release_k() const {
    if (lane() == 0) ptx::mbarrier_arrive(shared + S::kKEmpty + 8 * k_at.slot());
  }
  __device__ __forceinline__ void release_v() const {
    if (lane() == 0) ptx::mbarrier_arrive(shared + S::kVEmpty + 8 * v_at().slot());
  }
  __device__ __forceinline__ void wait_for_turn() {
    if constexpr (S::kConfig.ping_pong) {
      ptx::named_barrier_sync(kTurnBarrier + group, 2 * kWarpgroupThreads);
    }
  }
  __device__ __forceinline__ void give_turn() {
    if constexpr (S::kConfig.ping_pong) {
      const int next = group + 1;
      ptx::named_barrier_arrive(kTurnBarrier + (next == S::kConsumers ? 0 : next),
                                2 * kWarpgroupThreads);
    }
  }
  // Waits for the other three warps.
  __device__ __forceinline__ void wait_for_warps() const {
    ptx::named_barrier_sync(kEndBarrier + group, kWarpgroupThreads);
  }
  // The first consumer has the first turn.
  __device__ __forceinline__ void begin_turns() {
    if (group == S::kConsumers - 1) give_turn();
  }

  // The number of blocks right and left of those that this warpgroup sees.
  __device__ __forceinline__ int passes_before() const {
    return uniform(task().end - task().seen[group].end);
  }
  __device__ __forceinline__ int passes_after() const {
    return uniform(task().seen[group].begin - task().begin);
  }
  // The first key of block `left`.
  __device__ __forceinline__ int first_key(int left) const {
    return (uniform(task().seen[group].begin) + left) * S::kBlockKv;
  }

  // Skips a block that none of this warpgroup's rows sees. All consumers of a tile
  // take the same number of turns, one less than it has blocks. PTX lets lanes
  // leave a wait one by one: a late lane must not find the slot's next phase.
  __device__ __forceinline__ void pass_block(bool takes_turn) {
    begin_block();
    wait_for_k();
    __syncwarp();
    release_k();
    k_ring.next();
    k_at.next();
    if (takes_turn) {
      wait_for_turn();
      give_turn();
    }
    wait_for_v();
    __syncwarp();
    release_v();
  }

  __device__ __forceinline__ const TaskOptions& options() const {
    return smem.options.of[q_at.passed % S::kTaskSlots];
  }

  // Scales and masks scores for the softmax. `left`: number of the warpgroup's blocks that follow.
  __device__ __forceinline__ void finish_scores(int left) {
    if constexpr (S::kFeatures) scale_scores<S, S::kKeyProducts>(s, params);
    if constexpr (S::kOptions) apply_options<S, S::kKeyProducts, true>(*this, left);
    mask_block(left);
  }
  // True if this warp's scores came near the cap in this tile, or if
  // there is no cap. Kept in shared memory: registers are scarce.
  __device__ __forceinline__ bool& caps_exactly() const {
    return smem.caps_exactly[reload_thread_index() / kWarpThreads - kWarpgroupWarps];
  }
  __device__ __forceinline__ void cap_exactly(bool exactly) const {
    __syncwarp();
    if (lane() == 0) caps_exactly() = exactly;
    __syncwarp();
  }
  // A faster finish_scores(). Returns false if the scores must be recomputed.
  __device__ __forceinline__ bool try_scores(int left) {
    bool right = true;
    if constexpr (S::kFeatures) {
      if (ptx::uniform(static_cast<uint32_t>(caps_exactly())) != 0) {
        scale_scores<S, S::kKeyProducts>(s, params);
      } else {
        right = cap_scores<S>(s, params);
      }
    }
    if constexpr (S::kOptions) try_options<S>(*this, left);
    mask_block(left);
    return right;
  }
  __device__ __forceinline__ void mask_block(int left) {
    if (range.needs_mask(left)) {
      const int query = task().first_query + row(), key = first_key(left);
      mask_scores<S, 0, S::kKeyProducts>(s, task().limits, query, key, lane());
    }
  }
  // finish_scores() for the first kProducts products of the first block. For all rows
  // of half of the warpgroups, a causal mask does not affect the block's left half.
  template <int kProducts>
  __device__ __forceinline__ void finish_first_scores(int left) {
    if constexpr (S::kFeatures) scale_scores<S, kProducts>(s, params);
    if constexpr (S::kOptions) apply_options<S, kProducts, false>(*this, left);
    if (!range.needs_mask(left)) return;
    const BandLimits& limits = task().limits;
    const int query = task().first_query + row(), key = first_key(left);
    const int all_see =
        attention::visible_columns(limits, task().first_query + first_row(), key).end;
    if (ptx::uniform(static_cast<uint32_t>(!limits.open_left() || all_see < kHalfKeys)) != 0) {
      mask_scores<S, 0, kHalfProducts>(s, limits, query, key, lane());
    }
    mask_scores<S, kHalfProducts, kProducts>(s, limits, query, key, lane());
  }

  __device__ __forceinline__ bool unproven(const float (&total)[2], bool right) const {
    constexpr float kProven = kProvenSum<typename S::Element>;  // a NaN is not below it
    return __any_sync(0xffffffffU, !(right && total[0] < kProven && total[1] < kProven));
  }

  // Holds the sums while scores are recomputed; in shared memory where registers are scarce.
  __device__ __forceinline__ float2& saved_sum() const {
    return smem.saved_sum[reload_thread_index() - kWarpgroupThreads];
  }
  __device__ __forceinline__ void save_sum() const {
    if constexpr (!S::kHoldsSums) saved_sum() = make_float2(sum[0], sum[1]);
  }
  __device__ __forceinline__ void restore_sum() {
    if constexpr (!S::kHoldsSums) sum[0] = saved_sum().x, sum[1] = saved_sum().y;
  }
  __device__ __forceinline__ void add_online(const float (&rescale)[2], const float (&added)[2]) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) sum[slot] = sum[slot] * rescale[slot] + added[slot];
  }

  // Resets the state: no key has been seen.
  __device__ __forceinline__ void clear() {
    sum[0] = sum[1] = 0;
    if constexpr (S::kFeatures) cap_exactly(params.near_cap.fourth == 0);
    reference[0] = reference[1] = kNoReference;
#pragma unroll
    for (int part = 0; part < S::kOutParts; ++part) {
#pragma unroll
      for (int n = 0; n < S::kOutProducts; ++n) {
        o[part][n][0] = o[part][n][1] = o[part][n][2] = o[part][n][3] = 0;
      }
    }
  }

  // Waits for the next task; returns false if there is none.
  __device__ __forceinline__ bool open_task() {
    wait_for_q();
    const TaskInfo& t = task();
    const TileRange& seen = t.seen[group];
    ptx::may_be_unwritten(seen);  // unwritten after the last task
    const int begin = uniform(seen.begin);
    range = {0, uniform(seen.full_begin) - begin, uniform(seen.full_end) - begin,
             uniform(seen.end) - begin};
    return uniform(t.rows_q) != TaskInfo::kNoMore;
  }

  // Processes the first block, which sets the reference.
  __device__ __forceinline__ void first_block(int left) {
    clear();
    begin_block();
    wait_for_k();
    bool half = false;
    if constexpr (S::kHalves) {
      half = sees_left_half_only(left);
      if (half) {
        first_scores<kHalfProducts>(left_half<S>(s), left);
#pragma unroll
        for (int n = kHalfProducts; n < S::kKeyProducts; ++n) {
          s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
        }
      }
    }
    if (!half) first_scores<S::kKeyProducts>(s, left);
    k_ring.next();
    attention::pack<typename S::Element, 0, kPackedRegisters>(p, s);
  }

  // Returns whether none of the warpgroup's rows sees the right half of its first block.
  __device__ __forceinline__ bool sees_left_half_only(int left) const {
    const int last = task().first_query + first_row() + kWarpgroupRows - 1;
    const int seen = attention::visible_columns(task().limits, last, first_key(left)).end;
    return ptx::uniform(static_cast<uint32_t>(seen <= kHalfKeys)) != 0;
  }

  // `scores` is the computed part of s.
  template <int kProducts>
  __device__ __forceinline__ void first_scores(float (&scores)[kProducts][4], int left) {
    ptx::warpgroup_pin(scores);
    ptx::warpgroup_fence();
    start_qk<S>(scores, q_descriptor(), k_descriptor());
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(scores);
    release_k();
    if constexpr (S::kStagesOutputs) release_q();
    finish_first_scores<kProducts>(left);
    float rescale[2];
    online_softmax<S, kProducts>(s, reference, rescale, sum, exponent_scale());
  }

  // Processes a later block; P is the previous block's.
  __device__ __forceinline__ void next_block(int left) {
    begin_block();
    wait_for_k();
    wait_for_turn();
    ptx::warpgroup_pin(s);
    pin_outputs();
    ptx::warpgroup_fence();
    start_qk<S>(s, q_descriptor(), k_descriptor());
    wait_for_v();
    start_pv<S>(o, p, v_descriptor());
    give_turn();
    if constexpr (S::kOptions) begin_options<S>(*this, left);
    ptx::warpgroup_wait<1>();
    ptx::warpgroup_pin(s);
    const bool right = try_scores(left);

    // All four warps wait for products at the same instruction, never in a branch. The vote before
    // it keeps ptxas from moving the exponentials below the wait, where nothing overlaps them.
    constexpr int kBeside = S::kConfig.split_softmax ? kHalfProducts : S::kKeyProducts;
    constexpr int kPackedAfter = S::kConfig.split_softmax ? 2 * kHalfProducts : 0;
    float total[2], rescale[2] = {1, 1};
    attention::exponentiate<0, kBeside>(s, subtracted(), exponent_scale(), total);
    bool again = unproven(total, right);
    ptx::hold_back(again);
    ptx::warpgroup_wait<0>();
    pin_outputs();
    if constexpr (S::kConfig.split_softmax) {
      if (!again) {
        attention::pack<typename S::Element, 0, kPackedAfter>(p, s);
        float rest[2];
        attention::exponentiate<kHalfProducts, S::kKeyProducts>(s, subtracted(), exponent_scale(),
                                                                rest);
        total[0] += rest[0];
        total[1] += rest[1];
        again = unproven(total, right);
      }
    }
    if (again) {
      save_sum();
      recompute_scores<S>(s, q_tile(), k_tile(), warp(), lane());
      finish_scores(left);
      float block_sum[2];
      online_softmax<S>(s, reference, rescale, block_sum, exponent_scale());
      restore_sum();
      if constexpr (S::kFeatures) cap_exactly(true);
      add_online(rescale, block_sum);
      attention::pack<typename S::Element, 0, kPackedAfter>(p, s);
      __syncwarp();  // all lanes have read Q and K
    } else {
      sum[0] += total[0];
      sum[1] += total[1];
    }
    release_k();
    release_v();
    k_ring.next();
    attention::pack<typename S::Element, kPackedAfter, kPackedRegisters>(p, s);
    if (again) {
#pragma unroll
      for (int part = 0; part < S::kOutParts; ++part) attention::rescale_rows(o[part], rescale);
    }
  }

  // Computes O += P V of the last block; `meanwhile` runs during it.
  template <class Meanwhile>
  __device__ __forceinline__ void last_product(Meanwhile meanwhile) {
    begin_block();
    wait_for_v();
    pin_outputs();
    ptx::warpgroup_fence();
    start_pv<S>(o, p, v_descriptor());
    meanwhile();
    ptx::warpgroup_wait<0>();
    pin_outputs();
    release_v();
  }
};

}  // namespace flashcore::cuda::forward_sm90::throughput

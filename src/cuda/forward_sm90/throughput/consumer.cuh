// A consumer: one warpgroup, 64 query rows, over the blocks of keys from right to left.
//
//   block n + 1: ... P |        O += P V         | ...
//   block n    :       | S = Q K^T | exp (half) |  | exp (half), P | ...
//
// The product S of a block and the product O += P V of the block before are started together, and
// the exponentials run beside the second one. With ping-pong the warpgroups take turns at starting
// products, so that one's softmax runs beside another's products.
//
// Softmax without a maximum: the first block sets each row's reference, later blocks neither
// compare nor rescale. The exponentials' sums, needed anyway, prove that nothing overflowed. Where
// they do not, the warp computes the block's scores again (mma.sync, K still being there) and takes
// an ordinary online step, which raises the reference. Exact for all data; slower for some.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/throughput/scores.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/mbarrier_wait.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/unwritten.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// Named barriers: a turn and an end for each consumer.
inline constexpr int kTurnBarrier = 1, kFirstBarrier = 4, kMeetBarrier = 5, kEndBarrier = 8;

__device__ __forceinline__ int uniform(int x) {
  return static_cast<int>(ptx::uniform(static_cast<uint32_t>(x)));
}

template <class S>
struct Consumer {
  static constexpr int kHalfProducts = S::kKeyProducts / 2;
  static constexpr int kPackedRegisters = S::kKeyProducts * 2;

  typename S::Shared& smem;
  const Params& params;
  uint32_t shared;  // address of smem
  uint32_t thread;  // in the block
  int group;        // which consumer: 0 ..; like the rings' places the same for a whole warp, and
                    // known to be: addresses made of them cost no registers of threads
  RingPosition<S::kQSlots> q_at;
  TileRange range;                     // of the task at hand: the blocks that this warpgroup sees,
                                       // counted from the first of them
  uint32_t q_begin, k_begin, v_begin;  // descriptors of the first slots, their lower halves
  RingPosition<S::kStages> k_ring;     // V's ring is one block behind it, as its products are
  RingPosition<S::kStages> k_at;       // the same for the block at hand, known to be uniform

  Scores<S> s;
  Outputs<S> o;
  Probabilities<S> p;
  float sum[2];        // of this lane's exponentials
  float reference[2];  // what they are relative to

  // What follows from the thread's number is computed again for each use, so that the compiler does
  // not hold it; where registers are shortest, the number is read again, too.
  __device__ __forceinline__ uint32_t thread_anew() const {
    return S::kHoldsThread ? ptx::opaque(thread) : static_cast<uint32_t>(ptx::thread_index());
  }
  __device__ __forceinline__ int lane() const { return static_cast<int>(thread_anew() % 32); }
  __device__ __forceinline__ int warp() const { return static_cast<int>(thread_anew() / 32 % 4); }
  // The lane's row of slot 0, in the tile.
  __device__ __forceinline__ int row() const {
    const uint32_t t = thread_anew();
    return static_cast<int>(t / 32 * 16 + t % 32 / 4) - kWarpgroupRows;
  }

  // The warpgroup's first row in the tile.
  __device__ __forceinline__ int first_row() const { return group * kWarpgroupRows; }

  __device__ __forceinline__ uint32_t q_index() const {
    return q_at.slot() * S::kConsumers + static_cast<uint32_t>(group);
  }
  // Known to be uniform.
  __device__ __forceinline__ uint32_t q_tile() const {
    return shared + S::kQ + q_index() * S::QTile::kBytes;
  }
  __device__ __forceinline__ void begin_block() { k_at = k_ring; }
  __device__ __forceinline__ RingPosition<S::kStages> v_at() const { return {k_at.passed - 1}; }
  __device__ __forceinline__ uint32_t k_tile() const {
    return shared + S::kK + k_at.slot() * S::KTile::kBytes;
  }
  __device__ __forceinline__ void begin_descriptors() {
    // By uniform(), so that they are held: the compiler would make them again in every block,
    // between the turn and the first product.
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

  // Whose pages the task's keys lie in.
  __device__ __forceinline__ int pages_entry() const {
    if constexpr (S::kPaged) return smem.pages.of[q_at.passed % S::kTaskSlots].entry;
    return 0;
  }

  // Scores with features are in units of log2 already.
  __device__ __forceinline__ float exponent_scale() const {
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
  // By each warp: the place of the next tile's Q is free. With one place, after the warp's last
  // look at Q; with two, when the copy engine has read the outputs of the tile before from the
  // other one, which it has by the time that this tile has its first scores.
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
  // By each warp. K's ring moves on with the last use of k_at.
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
  // Until the other three warps are here.
  __device__ __forceinline__ void wait_for_warps() const {
    ptx::named_barrier_sync(kEndBarrier + group, kWarpgroupThreads);
  }
  // The first turn is the first consumer's.
  __device__ __forceinline__ void begin_turns() {
    if (group == S::kConsumers - 1) give_turn();
  }

  // Blocks that this warpgroup does not see, to the right and to the left of those that it sees.
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

  // A block that none of this warpgroup's rows sees. All consumers of a tile take the same number
  // of turns, one less than it has blocks. Lanes leave a wait one by one, as far as PTX promises:
  // one that is late must not find the next phase in its slot.
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

  // Scores as the softmax takes them; `left`: how many of the warpgroup's blocks come after.
  __device__ __forceinline__ void finish_scores(int left) {
    if constexpr (S::kFeatures) scale_scores<S, S::kKeyProducts>(s, params);
    mask_block(left);
  }
  // Whether this warp's scores came near the cap in this tile, or there is none. In shared memory:
  // registers are short.
  __device__ __forceinline__ bool& caps_exactly() const {
    return smem.caps_exactly[thread_anew() / kWarpThreads - kWarpgroupWarps];
  }
  __device__ __forceinline__ void cap_exactly(bool exactly) const {
    __syncwarp();
    if (lane() == 0) caps_exactly() = exactly;
    __syncwarp();
  }
  // The same, faster; false: they are to be computed again.
  __device__ __forceinline__ bool try_scores(int left) {
    bool right = true;
    if constexpr (S::kFeatures) {
      if (ptx::uniform(static_cast<uint32_t>(caps_exactly())) != 0) {
        scale_scores<S, S::kKeyProducts>(s, params);
      } else {
        right = cap_scores<S>(s, params);
      }
    }
    mask_block(left);
    return right;
  }
  __device__ __forceinline__ void mask_block(int left) {
    if (range.needs_mask(left)) {
      const int query = task().first_query + row(), key = first_key(left);
      mask_scores<S, 0, S::kKeyProducts>(s, task().limits, query, key, lane());
    }
  }
  // The same of the first kProducts products of the first block. A causal mask leaves its left half
  // alone for all rows of half the warpgroups.
  template <int kProducts>
  __device__ __forceinline__ void finish_first_scores(int left) {
    if constexpr (S::kFeatures) scale_scores<S, kProducts>(s, params);
    if (!range.needs_mask(left)) return;
    const BandLimits& limits = task().limits;
    const int query = task().first_query + row(), key = first_key(left);
    const int all_see =
        attention::visible_columns(limits, task().first_query + first_row(), key).end;
    if (ptx::uniform(static_cast<uint32_t>(!limits.open_left() || all_see < S::kBlockKv / 2)) !=
        0) {
      mask_scores<S, 0, kHalfProducts>(s, limits, query, key, lane());
    }
    mask_scores<S, kHalfProducts, kProducts>(s, limits, query, key, lane());
  }

  __device__ __forceinline__ bool unproven(const float (&total)[2], bool right) const {
    constexpr float kProven = S::Element::kProvenSum;  // a NaN is not below it
    return __any_sync(0xffffffffU, !(right && total[0] < kProven && total[1] < kProven));
  }

  // The sums while scores are computed again: elsewhere when registers are short.
  __device__ __forceinline__ float2& saved_sum() const {
    return smem.saved_sum[thread_anew() - kWarpgroupThreads];
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

  // No key has been seen.
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

  // Waits for the task at hand; false when there is none.
  __device__ __forceinline__ bool open_task() {
    wait_for_q();
    const TaskInfo& t = task();
    const TileRange& seen = t.seen[group];
    ptx::may_be_unwritten(seen);  // after the last task
    const int begin = uniform(seen.begin);
    range = {0, uniform(seen.full_begin) - begin, uniform(seen.full_end) - begin,
             uniform(seen.end) - begin};
    return uniform(t.rows_q) != TaskInfo::kNoMore;
  }

  // The first block: sets the reference.
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

  // Whether none of the warpgroup's rows sees the right half of its first block.
  __device__ __forceinline__ bool sees_left_half_only(int left) const {
    const int last = task().first_query + first_row() + kWarpgroupRows - 1;
    const int seen = attention::visible_columns(task().limits, last, first_key(left)).end;
    return ptx::uniform(static_cast<uint32_t>(seen <= S::kBlockKv / 2)) != 0;
  }

  // `scores` is the part of s that is computed.
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

  // A later block; P is that of the block before.
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
    ptx::warpgroup_wait<1>();
    ptx::warpgroup_pin(s);
    const bool right = try_scores(left);

    // A wait for products is one instruction for all four warps, never one branch's. The vote
    // before it keeps ptxas from moving the exponentials below it, where nothing runs beside them.
    constexpr int kBeside = S::kConfig.split_softmax ? kHalfProducts : S::kKeyProducts;
    constexpr int kPackedAfter = S::kConfig.split_softmax ? kPackedRegisters / 2 : 0;
    float total[2], rescale[2] = {1, 1};
    attention::exponentiate<0, kBeside>(s, reference, exponent_scale(), total);
    bool again = unproven(total, right);
    ptx::hold_back(again);
    ptx::warpgroup_wait<0>();
    pin_outputs();
    if constexpr (S::kConfig.split_softmax) {
      if (!again) {
        attention::pack<typename S::Element, 0, kPackedAfter>(p, s);
        float rest[2];
        attention::exponentiate<kHalfProducts, S::kKeyProducts>(s, reference, exponent_scale(),
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

  // O += P V of the last block; `meanwhile` runs beside it.
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

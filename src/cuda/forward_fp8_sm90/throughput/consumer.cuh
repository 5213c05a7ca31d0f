// A consumer: one warpgroup, 64 query rows. KV blocks are visited last to first. A sink at the first
// keys would push other probabilities below e4m3's range; this way they are summed before it comes.
//
//   block n + 1: ... P |        O += P V         | ...
//   block n    :       | S = Q K^T | exponentials | P | ...
//
// The product S of one block and the product O += P V of the block
// before it start together, and the exponentials overlap the second one.
//
// Each group of blocks has its own references. The sums over groups are fp32 numbers in
// shared memory, private to each thread, and relative to the largest reference so far:
//
//   group    | block sets references | blocks | ... |  sums = sums * 2^(..) + o * 2^(..)
//
// So the Tensor Cores add up few blocks, which matters since they truncate each
// product some 13 bits below the sum that it is added to. A key that dominates a row
// makes the others of its group too small for e4m3, but not a hundred thousand others.
//
// Within a group, the softmax has no running maximum: blocks after the first neither
// compare nor rescale. The sums of exponentials, needed anyway, prove that all P fit
// e4m3. If they do not, the warp recomputes the block's scores (mma.sync, K is still
// in memory) and does an ordinary online step, which raises the reference.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/forward_fp8_sm90/throughput/scores.cuh"
#include "cuda/forward_fp8_sm90/throughput/shape.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/unwritten.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

__device__ __forceinline__ int uniform(int x) {
  return static_cast<int>(ptx::uniform(static_cast<uint32_t>(x)));
}

template <class S>
struct Consumer {
  typename S::Shared& smem;
  const typename S::Params& params;
  uint32_t shared;  // address of smem
  uint32_t thread;  // in the block
  int group;        // which consumer: 0, 1, ..
  Ring<S::kQSlots> q_at{};
  Ring<S::kKStages> k_at{};
  Ring<S::kVStages> v_at{};  // one block behind K's, like its products
  TileRange range{};         // of the current task: the blocks that this warpgroup sees
  float scale = 0;           // from products of stored elements to scores in units of log2
  uint32_t q_begin = 0, k_begin = 0, v_begin = 0;  // lower halves of the first slots' descriptors

  Scores<S> s;
  Outputs<S> o;
  Probabilities<S> p;
  // The current group:
  int held = 0;        // number of blocks in o
  float sum[2];        // this lane's sum of P before rounding
  float reference[2];  // of exponents, in units of log2
  // The earlier groups:
  bool has_flushed = false;  // there are earlier groups
  float flushed_sum[2];
  float flushed_rounded[2];  // of the rounded P, over the whole row
  float flushed_reference[2];

  // Values derived from the thread index are recomputed for each use, so that they are not kept.
  __device__ __forceinline__ uint32_t reload_thread_index() const { return ptx::opaque(thread); }
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
  __device__ __forceinline__ int first_row() const { return group * kWarpgroupRows; }
  __device__ __forceinline__ const typename S::Task& task() const { return smem.task[q_at.slot]; }

  __device__ __forceinline__ uint32_t q_tile() const {
    return shared + S::kQ +
           (q_at.slot * S::kConsumers + static_cast<uint32_t>(group)) * S::QTile::kBytes;
  }
  __device__ __forceinline__ uint32_t k_tile() const {
    return shared + S::kK + k_at.slot * S::KTile::kBytes;
  }
  // uniform() makes the compiler hold them once per warp.
  __device__ __forceinline__ void begin_descriptors() {
    q_begin = ptx::uniform(lower_half(tile::byte_descriptor<typename S::QTile>(
        shared + S::kQ + static_cast<uint32_t>(group) * S::QTile::kBytes)));
    k_begin = ptx::uniform(lower_half(tile::byte_descriptor<typename S::KTile>(shared + S::kK)));
    v_begin = ptx::uniform(lower_half(tile::byte_descriptor<typename S::VTile>(shared + S::kV)));
  }
  __device__ __forceinline__ uint32_t q_descriptor() const {
    return q_begin + q_at.slot * (S::kConsumers * S::QTile::kBytes / 16);
  }
  __device__ __forceinline__ uint32_t k_descriptor() const {
    return k_begin + k_at.slot * (S::KTile::kBytes / 16);
  }
  __device__ __forceinline__ uint32_t v_descriptor() const {
    return v_begin + v_at.slot * (S::VTile::kBytes / 16);
  }

  __device__ __forceinline__ void wait_for_q() const {
    ptx::mbarrier_wait_together(shared + S::kQFull + 8 * q_at.slot, q_at.parity);
  }
  __device__ __forceinline__ void wait_for_k() const {
    ptx::mbarrier_wait_together(shared + S::kKFull + 8 * k_at.slot, k_at.parity);
  }
  __device__ __forceinline__ void wait_for_v() const {
    ptx::mbarrier_wait_together(shared + S::kVFull + 8 * v_at.slot, v_at.parity);
  }
  // Called by each warp when all of its lanes are done with the slot.
  __device__ __forceinline__ void release_q() {
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(shared + S::kQEmpty + 8 * q_at.slot);
    q_at.next();
  }
  __device__ __forceinline__ void release_k() {
    if (lane() == 0) ptx::mbarrier_arrive(shared + S::kKEmpty + 8 * k_at.slot);
    k_at.next();
  }
  __device__ __forceinline__ void release_v() {
    if (lane() == 0) ptx::mbarrier_arrive(shared + S::kVEmpty + 8 * v_at.slot);
    v_at.next();
  }

  // Skips blocks that none of this warpgroup's rows sees. PTX lets lanes
  // leave a wait one by one: a late lane must not find the slot's next phase.
  __device__ __forceinline__ void pass_blocks(int count) {
#pragma unroll 1
    for (int i = uniform(count); i > 0; --i) {
      wait_for_k();
      __syncwarp();
      release_k();
      wait_for_v();
      __syncwarp();
      release_v();
    }
  }

  // For options. With a cap, scores are computed in units of log2, and may have any scale.
  __device__ __forceinline__ bool caps() const { return params.softcap > 0; }
  __device__ __forceinline__ bool takes_scale() const {
    return caps() ? fabsf(scale) <= std::numeric_limits<float>::max() : scale > 0;
  }
  __device__ __forceinline__ float exponent_scale() const {
    if constexpr (S::kOptions) return caps() ? 1.0F : scale;
    return scale;
  }
  // This lane's largest scores of its rows, in units of
  // log2: in shared memory, as few problems request them.
  __device__ __forceinline__ float2& largest_scores() const {
    return smem.largest
        .scores[group * kWarpgroupThreads + reload_thread_index() % kWarpgroupThreads];
  }
  __device__ __forceinline__ bool wants_largest() const {
    if constexpr (S::kOptions) return params.amax_s.data != nullptr;
    return false;
  }
  __device__ __forceinline__ void note_largest(float first, float second) {
    float2& largest = largest_scores();
    largest = {fmaxf(largest.x, first), fmaxf(largest.y, second)};
  }
  __device__ __forceinline__ void note_largest_scores() {
    if constexpr (S::kOptions) {
      if (!wants_largest()) return;
      note_largest(attention::lane_max(s, 0) * exponent_scale(),
                   attention::lane_max(s, 1) * exponent_scale());
    }
  }
  // Finds them from P, which needs no comparisons before the exponentials.
  __device__ __forceinline__ void note_largest_of(const BlockSums& found) {
    note_largest(__log2f(found.largest[0]) + reference[0],
                 __log2f(found.largest[1]) + reference[1]);
  }
  // Turns a block's products into scores: applies the cap, and masks the band and the length.
  __device__ __forceinline__ void mask_block(int block) {
    if constexpr (S::kOptions) {
      if (caps()) cap_scores<S>(s, softcap_of(params.softcap, scale * kLn2));
    }
    if (!range.needs_mask(block)) return;
    mask_scores<S>(s, task().limits, task().first_query + row(), block * S::kBlockKeys, lane());
  }

  // Resets the state: no key has been seen.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      sum[slot] = flushed_sum[slot] = flushed_rounded[slot] = 0;
      reference[slot] = flushed_reference[slot] = kNoReference;
    }
    if constexpr (S::kOptions) {
      if (wants_largest()) largest_scores() = {kNoKey, kNoKey};
    }
    held = 0;
    has_flushed = false;
    clear_outputs();
  }
  __device__ __forceinline__ void clear_outputs() {
#pragma unroll
    for (int n = 0; n <= S::kOutProducts; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
  }

  // Waits for the next task; returns false if there is none.
  __device__ __forceinline__ bool open_task() {
    wait_for_q();
    const Task& t = task();
    const TileRange& seen = t.seen[group];
    ptx::may_be_unwritten(seen);  // unwritten after the last task
    range = {uniform(seen.begin), uniform(seen.full_begin), uniform(seen.full_end),
             uniform(seen.end)};
    return uniform(t.rows_q) != Task::kNoMore;
  }

  // The address of this thread's fp32 sums of product 0; products are kSumStep apart.
  static constexpr uint32_t kSumStep = kWarpgroupThreads * sizeof(float4);
  __device__ __forceinline__ uint32_t sums() const {
    return shared + S::kO + static_cast<uint32_t>(group) * (S::kOutProducts * kSumStep) +
           reload_thread_index() % kWarpgroupThreads * static_cast<uint32_t>(sizeof(float4));
  }
  // The factors by which the sums of earlier groups, and of this one, are multiplied when added.
  struct Meeting {
    float before[2], now[2];
  };
  // Adds this group's sums, relative to `its_reference`, to the sums of earlier groups.
  __device__ __forceinline__ Meeting meet(const float (&its_reference)[2]) {
    Meeting factor;
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float raised = fmaxf(flushed_reference[slot], its_reference[slot]);
      factor.before[slot] = ptx::exp2_approx(flushed_reference[slot] - raised);
      factor.now[slot] = held > 0 ? ptx::exp2_approx(its_reference[slot] - raised) : 0.0F;
      flushed_sum[slot] = flushed_sum[slot] * factor.before[slot] + sum[slot] * factor.now[slot];
      flushed_rounded[slot] =
          flushed_rounded[slot] * factor.before[slot] + o[S::kOnes][2 * slot] * factor.now[slot];
      flushed_reference[slot] = raised;
      sum[slot] = 0;
    }
    return factor;
  }
  // Ends a group: adds its outputs to the sums in shared memory.
  __device__ __forceinline__ void flush(const float (&its_reference)[2]) {
    const Meeting factor = meet(its_reference);
    const uint32_t at = sums();
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
      float4 x{0, 0, 0, 0};
      if (has_flushed) x = ptx::load_shared_f32x4(at + n * kSumStep);
      ptx::store_shared_x4(at + n * kSumStep,
                           {fmaf(x.x, factor.before[0], o[n][0] * factor.now[0]),
                            fmaf(x.y, factor.before[0], o[n][1] * factor.now[0]),
                            fmaf(x.z, factor.before[1], o[n][2] * factor.now[1]),
                            fmaf(x.w, factor.before[1], o[n][3] * factor.now[1])});
    }
    has_flushed = true;
    held = 0;
  }
  // Adds up all groups in o, relative to flushed_reference.
  __device__ __forceinline__ void end_sums() {
    const Meeting factor = meet(reference);
    if (held > 0) {
      attention::rescale_rows(o, factor.now);
    } else {
      clear_outputs();
    }
    if (!has_flushed) return;
    const uint32_t at = sums();
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
      const float4 x = ptx::load_shared_f32x4(at + n * kSumStep);
      o[n][0] = fmaf(x.x, factor.before[0], o[n][0]);
      o[n][1] = fmaf(x.y, factor.before[0], o[n][1]);
      o[n][2] = fmaf(x.z, factor.before[1], o[n][2]);
      o[n][3] = fmaf(x.w, factor.before[1], o[n][3]);
    }
  }
  // Rescales the group's sums.
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    sum[0] *= factor[0];
    sum[1] *= factor[1];
    attention::rescale_rows(o, factor);
  }

  __device__ __forceinline__ void start_scores() {
    ptx::warpgroup_pin(s);
    ptx::warpgroup_fence();
    start_qk<S>(s, q_descriptor(), k_descriptor());
  }
  // Starts O += P V, as its own wgmma group.
  __device__ __forceinline__ void start_outputs(ptx::Accumulate first) {
    ptx::warpgroup_fence();
    start_pv<S>(o, p, v_descriptor(), first);
  }
  // The first product of a group overwrites.
  __device__ __forceinline__ ptx::Accumulate first_sum() const {
    return held == 0 ? ptx::Accumulate::overwrite : ptx::Accumulate::add;
  }

  // Completes S of a block, and does an ordinary step of the online softmax.
  __device__ __forceinline__ void finish_scores(int block, float top, float (&factor)[2],
                                                float (&total)[2]) {
    wait_for_k();
    start_scores();
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s);
    release_k();
    mask_block(block);
    note_largest_scores();
    online_softmax<S>(s, top, reference, factor, total, exponent_scale());
  }

  // Processes a later block; P is the previous block's. Sums of P before
  // rounding, and the largest scores, are computed only if requested.
  template <bool kSums, bool kLargest>
  __device__ __forceinline__ void next_block(int block) {
    wait_for_k();
    ptx::warpgroup_pin(o);
    start_scores();
    wait_for_v();
    start_outputs(first_sum());
    ptx::warpgroup_wait<1>();
    ptx::warpgroup_pin(s);
    mask_block(block);
    const float before[2] = {reference[0], reference[1]};
    const bool begins_group = held + 1 == S::kConfig.flush_blocks;
    if (begins_group) set_references<S>(s, reference, exponent_scale());
    // Two sets of variables, so that measured instances without spared sums keep their machine code.
    [[maybe_unused]] BlockSums found;
    [[maybe_unused]] float totals[2], most_of_sums;
    float(&total)[2] = S::kConfig.spares_sums ? found.total : totals;
    float& most = S::kConfig.spares_sums ? found.most : most_of_sums;
    if constexpr (S::kConfig.spares_sums) {
      exponentiate_sparing<S, kSums, kLargest || !kSums>(s, reference, exponent_scale(), found);
    } else {
      exponentiate<S>(s, reference, exponent_scale(), total, most);
    }
    // All four warps wait for products at the same instruction, never in a branch. The vote before
    // it keeps ptxas from moving the exponentials below the wait, where nothing overlaps them.
    // fmaxf ignores NaN in the sums; as an integer, NaN is the largest P.
    const bool large = S::kConfig.spares_sums ? !(most < kLargestP) : most >= kLargestP;
    const bool again = __any_sync(0xffffffffU, large) != 0;
    ptx::hold_back(again);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(o);
    ++held;
    if (begins_group) flush(before);
    release_v();
    if (again) {
      recompute_scores<S>(s, q_tile(), k_tile(), warp(), lane());
      mask_block(block);
      note_largest_scores();
      float factor[2];
      online_softmax<S>(s, kTop, reference, factor, total, exponent_scale());
      rescale(factor);
      __syncwarp();  // all lanes have read K
    } else if constexpr (kLargest) {
      note_largest_of(found);
    }
    if constexpr (kSums) {
      sum[0] += total[0];
      sum[1] += total[1];
    }
    release_k();
    pack<S>(p, s);
  }

  // O += P V, complete on return.
  __device__ __forceinline__ void add_outputs(ptx::Accumulate first) {
    ptx::warpgroup_pin(o);
    start_outputs(first);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(o);
  }
  // P as e4m3 rounds it. Without kSums, sums of the rounded P replace the sums of P before rounding.
  template <bool kSums, bool kLargest>
  __device__ __forceinline__ void attend() {
    clear();
    int block = range.end - 1;
    float factor[2];
    finish_scores(block, range.needs_mask(block) ? kTopOfFew : kTop, factor, sum);
    pack<S>(p, s);
#pragma unroll 1
    while (block > range.begin) next_block<kSums, kLargest>(--block);
    wait_for_v();
    add_outputs(first_sum());
    ++held;
    release_v();
    end_sums();
    if constexpr (!kSums) {  // a quarter per lane
      flushed_sum[0] = 0.25F * flushed_rounded[0];
      flushed_sum[1] = 0.25F * flushed_rounded[1];
    }
  }

  // P as the sum of two e4m3 numbers: the second is the rounding error of the
  // first. Blocks are processed one by one, with nothing overlapping the products.
  __device__ __forceinline__ void attend_in_two_terms() {
    clear();
#pragma unroll 1
    for (int block = range.end - 1; block >= range.begin; --block) {
      float factor[2], total[2];
      finish_scores(block, kTopOfTwoTerms, factor, total);
      rescale(factor);
      sum[0] += total[0];
      sum[1] += total[1];
      wait_for_v();
      pack<S>(p, s);
      add_outputs(first_sum());
      pack_rest<S>(p, s, p);
      add_outputs(ptx::Accumulate::add);
      release_v();
      if (++held == S::kConfig.flush_blocks) {
        flush(reference);
        reference[0] = reference[1] = kNoReference;
      }
    }
    end_sums();
  }
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput

// The first warpgroup: S = Q K^T, the softmax, and the probabilities for the other two.
//
// The reference of a row's exponents is one of its scores, and only moves when a later score passes it by
// Params::headroom. Exponents are of differences, so scores of any size are right. Values are weighted
// relative to the sum of the rounded probabilities: a single key has all of the weight.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/output.cuh"
#include "cuda/attention/decode/tree.cuh"
#include "cuda/attention/softcap.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/mla_sm90/latent/block.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::mla_sm90::latent {

template <class Element>
class Scores {
  static constexpr int kBarrier = 1, kGroupThreads = 128;

 public:
  __device__ Scores(const Params& p, const Block& block)
      : p_(p), block_(block), warp_(uniform(thread() / 32)) {}

  __device__ __forceinline__ void run() {
    uint32_t q[kHeldSteps][4];
    float end_factor[2] = {0, 0};
#pragma unroll 1
    for (int u = 0; u < block_.count; ++u) {
      ptx::mbarrier_wait_together(block_.full(ring_.slot), ring_.parity);
      hold_query(q);
      leave_factors(end_factor);
      hand_over();
      let_go(ring_.slot);
      ring_.next();
      attend(block_.units[u], q);
      finish(block_.units[u], end_factor);
    }
    // The slot's factors have been read.
    ptx::mbarrier_wait_together(block_.empty(ring_.slot), ring_.parity ^ 1);
    leave_factors(end_factor);
    hand_over();
  }

 private:
  // Not kept: registers are for Q.
  __device__ static int thread() { return ptx::thread_index(); }
  __device__ static int lane() { return ptx::thread_index() % 32; }

  __device__ void meet() const { ptx::named_barrier_sync(kBarrier, kGroupThreads); }

  // What this warp has written is for the others.
  __device__ void hand_over() const {
    __syncwarp();
    if (has_factors(lane())) ptx::mbarrier_arrive(block_.ready(ring_.slot));
  }
  __device__ void let_go(uint32_t slot) const {
    if (thread() == 0) ptx::mbarrier_arrive(block_.go(slot));
  }

  // The address in a slot of this lane's row of a warp's 16 x 16 matrix, for ldmatrix and stmatrix.
  __device__ uint32_t lane_address() const {
    const auto place = static_cast<uint32_t>(lane());
    const uint32_t row = place % 8, half = place / 16;
    return (2 * static_cast<uint32_t>(warp_) + place / 8 % 2) * kGroupBytes + row * 128 +
           ((half ^ row) << 4);
  }

  __device__ __forceinline__ void hold_query(uint32_t (&q)[kHeldSteps][4]) const {
    const uint32_t slot = block_.slot(ring_.slot), at = lane_address();
#pragma unroll
    for (int k = 0; k < kHeldSteps; ++k) {
      const auto step = static_cast<uint32_t>(k);
      ptx::ldmatrix_x4(q[k], slot + step / 4 * kPanelBytes + (at ^ (step % 4 * 32)));
    }
    const auto place = static_cast<uint32_t>(thread());
#pragma unroll
    for (uint32_t i = 0; i < kRopeBytes; i += 16 * kGroupThreads) {
      const uint32_t to = i + 16 * place;
      copy_chunk(block_.shared + kRopeAt + to,
                 slot + to / kPanelBytes * kGroupBytes + kVPanels * kPanelBytes + to % kPanelBytes);
    }
    const uint32_t row = place / 2, half = place % 2, in_group = row % kGroupRows;
    copy_chunk(block_.shared + kLastStepAt + tile::swizzle_bytes<32>(32 * row + 16 * half),
               slot + row / kGroupRows * kGroupBytes + (kVPanels - 1) * kPanelBytes +
                   in_group * 128 + (((6 + half) ^ in_group) << 4));
    ptx::fence_proxy_async();
    meet();
  }
  __device__ static void copy_chunk(uint32_t to, uint32_t from) {
    const uint4 x = ptx::load_shared_x4(from);
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
    ptx::store_shared_x4(to, words);
  }

  __device__ __forceinline__ void attend(const Unit& unit, const uint32_t (&q)[kHeldSteps][4]) {
    const int begin = uniform(unit.begin), end = uniform(unit.end);
#pragma unroll
    for (int i = 0; i < 2; ++i) reference_[i] = attention::kNoKey, sum_[i] = rounded_[i] = 0;
    bool first = true;
#pragma unroll 1
    for (int key = begin / kTileKeys * kTileKeys; key < end; key += kTileKeys, first = false) {
      float s[kTileKeys / 8][4];
      multiply(s, q, first);
      if (p_.softcap.cap_log2 > 0) cap(s);
      const bool masked =
          key < begin || key + kTileKeys > end || (p_.tree.present && key + kTileKeys > unit.tree);
      if (masked) mask(s, seen_keys(unit, key));
      raise(s);
      uint32_t p[kTileKeys / 8][2];
      exponentiate(p, s);
      meet();  // all warps' products with the slot's keys have ended
      if (masked) clear(seen_keys(unit, key), begin - key, end - key);
      store(p);
      ptx::fence_proxy_async();
      hand_over();
      if (key + kTileKeys >= end) let_go(ring_.slot);
      ring_.next();
    }
  }

  __device__ __forceinline__ void multiply(float (&s)[kTileKeys / 8][4],
                                           const uint32_t (&q)[kHeldSteps][4], bool first) const {
    using ptx::Accumulate, ptx::Major;
    const uint64_t keys = rows_of_slot(block_.slot(ring_.slot), 0);
    const uint64_t last = tile::smem_descriptor(block_.shared + kLastStepAt, 16, 8 * 32,
                                                tile::DescriptorSwizzle::span_32);
    const uint64_t rope = tile::smem_descriptor(block_.shared + kRopeAt, 16, tile::kEightRowBytes,
                                                tile::DescriptorSwizzle::span_128);
    ptx::mbarrier_wait_together(block_.full(ring_.slot), ring_.parity);
    ptx::warpgroup_pin(s);
    ptx::warpgroup_fence();
#pragma unroll
    for (int k = 0; k < kHeldSteps; ++k) {
      const uint64_t of_step = advanced(keys, step_at(k));
      if (k == 0) {
        Element::template multiply_rs<Accumulate::overwrite, Major::k>(s, q[k], of_step);
      } else {
        Element::template multiply_rs<Accumulate::add, Major::k>(s, q[k], of_step);
      }
      if (k + 1 == kEarlySteps) ptx::warpgroup_commit();
    }
    Element::template multiply_ss<Accumulate::add>(s, last, advanced(keys, step_at(kHeldSteps)));
#pragma unroll
    for (int k = 0; k < kRopeSteps; ++k) {
      Element::template multiply_ss<Accumulate::add>(s, advanced(rope, step_at(k)),
                                                     advanced(keys, step_at(kSteps + k)));
    }
    ptx::warpgroup_commit();
    ptx::warpgroup_wait<1>();
    if (!first) let_go(ring_.slot == 0 ? kSlots - 1 : ring_.slot - 1);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s);
  }
  static constexpr uint32_t step_at(int k) {
    return static_cast<uint32_t>(k) / 4 * kPanelBytes + static_cast<uint32_t>(k) % 4 * 32;
  }

  // The keys of a tile that the unit's query sees: a bit each, the same for all rows.
  __device__ uint64_t seen_keys(const Unit& unit, int key) const {
    const int begin = unit.begin - key, end = unit.end - key;
    uint64_t seen = ~uint64_t{0};
    if (begin > 0) seen <<= begin;
    if (end < kTileKeys) seen &= ~uint64_t{0} >> (kTileKeys - end);
    if (p_.tree.present) {
      attention::Entry entry{};
      entry.q_row = unit.q_row;
      entry.offset = unit.tree;
      const auto word = [&](int at) -> uint64_t {
        return attention::decode::tree_bits(p_.tree, entry, unit.batch, 0, at);
      };
      seen &= word(key) | word(key + 32) << 32;
    }
    return seen;
  }

  __device__ void mask(float (&s)[kTileKeys / 8][4], uint64_t seen) const {
    seen >>= 2 * (lane() % 4);
#pragma unroll
    for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if ((seen >> (8 * n + e) & 1) == 0) s[n][e] = s[n][2 + e] = attention::kNoKey;
      }
    }
  }

  __device__ void cap(float (&s)[kTileKeys / 8][4]) const {
#pragma unroll
    for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] = attention::capped_log2(s[n][e], p_.softcap);
    }
  }

  // Moves references that a score passes by too much, and tells the factors of what was summed before.
  __device__ __forceinline__ void raise(const float (&s)[kTileKeys / 8][4]) {
    float most[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) most[i] = attention::lane_max(s, i);
    const bool raised = __any_sync(0xffffffffU, most[0] > reference_[0] + p_.headroom ||
                                                    most[1] > reference_[1] + p_.headroom) != 0;
    if (lane() == 0) block_state().raised[ring_.slot][warp_] = raised ? 1 : 0;
    if (!raised) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float to = fmaxf(reference_[i], attention::quad_max(most[i]));
      const float factor =
          to == reference_[i] ? 1.0F : ptx::exp2_approx((reference_[i] - to) * p_.unit);
      reference_[i] = to;
      sum_[i] *= factor;
      rounded_[i] *= factor;
      if (has_factors(lane())) {
        block_state().factor[ring_.slot][row_of(warp_, lane(), i)] = factor;
      }
    }
  }

  __device__ __forceinline__ void exponentiate(uint32_t (&p)[kTileKeys / 8][2],
                                               const float (&s)[kTileKeys / 8][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float reference = attention::finite_reference(reference_[i]);
#pragma unroll
      for (int n = 0; n < kTileKeys / 8; ++n) {
        const float low = ptx::exp2_approx((s[n][2 * i] - reference) * p_.unit);
        const float high = ptx::exp2_approx((s[n][2 * i + 1] - reference) * p_.unit);
        p[n][i] = Element::pack(low, high);
        sum_[i] += low + high;
        rounded_[i] += Element::to_float(p[n][i]) + Element::to_float(p[n][i] >> 16);
      }
    }
  }

  // Rows of V that are not seen become zeros, as a weight of 0 times a NaN is one: two at once, by 64 threads each.
  // Boxes of 8 rows without a key of [begin, end) are zeros already.
  __device__ void clear(uint64_t seen, int begin, int end) const {
    static_assert(kHeadDimV / 8 == kGroupThreads / 2);
    const auto chunk = static_cast<uint32_t>(thread() % (kGroupThreads / 2));
    const uint32_t zeros[4] = {0, 0, 0, 0};
    uint64_t hidden = ~seen;
    if (begin > 0) hidden &= ~uint64_t{0} << (begin / kGroupRows * kGroupRows);
    if (end < kTileKeys) {
      const int loaded = (end + kGroupRows - 1) / kGroupRows * kGroupRows;
      hidden &= ~uint64_t{0} >> (kTileKeys - loaded);
    }
    if (thread() >= kGroupThreads / 2) hidden &= hidden - 1;
#pragma unroll 1
    while (hidden != 0) {
      const auto low = static_cast<int>(hidden), high = static_cast<int>(hidden >> 32);
      const auto row = static_cast<uint32_t>(low != 0 ? __ffs(low) - 1 : 31 + __ffs(high));
      ptx::store_shared_x4(block_.slot(ring_.slot) + row / kGroupRows * kGroupBytes +
                               chunk / 8 * kPanelBytes + row % kGroupRows * 128 + chunk % 8 * 16,
                           zeros);
      hidden &= hidden - 1;
      hidden &= hidden - 1;
    }
  }

  __device__ __forceinline__ void store(const uint32_t (&p)[kTileKeys / 8][2]) const {
    const uint32_t to = block_.slot(ring_.slot) + kVPanels * kPanelBytes, at = lane_address();
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k) {
      ptx::stmatrix_x4(to + (at ^ static_cast<uint32_t>(32 * k)), p[2 * k][0], p[2 * k][1],
                       p[2 * k + 1][0], p[2 * k + 1][1]);
    }
  }

  // Numbers of the unit's rows; end_factor: of their outputs, 0 where no key is seen.
  __device__ __forceinline__ void finish(const Unit& unit, float (&end_factor)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = attention::quad_sum(sum_[i]), rounded = attention::quad_sum(rounded_[i]);
      const int row = row_of(warp_, lane(), i), head = block_.first_head + row;
      const float share = rounded == 0 ? 0.0F : __fdividef(sum, rounded);
      end_factor[i] = share;
      if (head >= p_.heads_q) continue;
      if (unit.slot >= 0) {
        if (lane() % 4 != 0) continue;
        p_.partial_rows[block_.partial_row(p_, unit.slot, row)] = make_float2(reference_[i], sum);
        continue;
      }
      const attention::decode::Ending ending =
          attention::decode::ending_of(p_, head, reference_[i] * p_.natural, sum);
      end_factor[i] = ending.empty ? 0.0F : ending.factor * share;
      if (p_.lse == nullptr || lane() % 4 != 0) continue;
      p_.lse[attention::decode::lse_at(p_, unit.batch, head, unit.q_row)] = ending.lse;
    }
  }
  __device__ void leave_factors(const float (&end_factor)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (has_factors(lane())) {
        block_state().factor[ring_.slot][row_of(warp_, lane(), i)] = end_factor[i];
      }
    }
  }

  const Params& p_;
  const Block& block_;
  const int warp_;
  Ring ring_;
  float reference_[2], sum_[2], rounded_[2];
};

}  // namespace flashcore::cuda::mla_sm90::latent

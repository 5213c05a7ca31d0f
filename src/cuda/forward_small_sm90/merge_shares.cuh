// The merge in 16 bits: all shares go at once to who adds them up.
//
// Each warp of each warpgroup has 16 rows x head_dim outputs over its own keys. They are cut into
// four chunks, one for each part: rows + 0..7 or + 8..15, and the left or right half of the
// columns. Warpgroup `group` of block `rank` finishes the chunk of row half `group` and column half
// `rank`: from every part, its own included, it gets that chunk, divided by the part's own sum, in
// fp16 of a scale of the part's own.
//
//   while the last product runs   log-sum-exp and scale of each row to who finishes it
//   within the block              through shared memory, and a named barrier of the two warps
//   to the other block            by st.async, counted at a barrier of the receiving warp alone
//
// Which chunk goes where is an address; what is in it is fixed. A block leaves only when all that
// is sent to it has come, so no barrier is needed at the end.
//
// fp16 has three bits more than bf16; for results of fp16 it is another rounding, see MergeSums.
// The scale is a power of two by which a sample of V becomes less than 8: what is 2^16 times
// smaller still has all its bits, and only what is 2^13 times larger becomes infinite, and is
// computed exactly.
#pragma once

#include <cstdint>

#include "cuda/forward_small_sm90/merge_store.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/cluster_store.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/log2.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/shared_access.cuh"

namespace flashcore::cuda::forward_small_sm90 {

template <class S>
struct MergeShares : MergeBase<S> {
  using Base = MergeBase<S>;
  using Base::finite, Base::group, Base::kPieces, Base::lane, Base::places, Base::rank;
  using Base::smem, Base::warp, Base::words;
  static constexpr int kParts = S::kParts, kChunkProducts = S::kOutProducts / S::kRanks;
  static_assert(S::kRanks == 2);

  // Addresses, found early.
  struct Ways {
    uint32_t local, row;  // where this lane's outputs go in the own block, and its say of a row
    uint32_t inbox;       // the first of the lane's shares
    uint32_t remote, counted, remote_row, row_counted;  // the other block's, and their barriers
  };
  __device__ __forceinline__ static Ways find_ways(const typename S::Shared& smem, int rank,
                                                   int group, int warp, int lane) {
    Ways at;
    const auto& memory = smem.merge;
    const int row = lane / 4, quarter = lane % 4, part = S::part_of(rank, group);
    at.local = ptx::shared_address(&memory.outputs[0][warp][part][0][slot_of(row, quarter)][0]);
    at.row = ptx::shared_address(&memory.rows[lane % 2][warp][part][row]);
    at.inbox = ptx::shared_address(&memory.outputs[group][warp][0][0][slot_of(row, 0)][quarter]);
    const auto other = static_cast<uint32_t>(rank ^ 1);
    at.remote = ptx::cluster_address(at.local, other);
    at.counted = ptx::cluster_address(ptx::shared_address(&smem.received[0][warp]), other);
    at.remote_row = ptx::cluster_address(at.row, other);
    at.row_counted =
        ptx::cluster_address(ptx::shared_address(&smem.rows_received[lane % 2]), other);
    if constexpr (S::kConfig.blocks == 1) asm volatile("" : "+r"(at.inbox));
    asm volatile("" : "+r"(at.local), "+r"(at.row));
    asm volatile("" : "+r"(at.remote), "+r"(at.remote_row), "+r"(at.counted), "+r"(at.row_counted));
    return at;
  }
  const Ways& ways;
  float inverse[2];  // what the two rows' outputs are multiplied by

  // The exponent of the scale.
  __device__ __forceinline__ static int scale_exponent(uint32_t sample) {
    constexpr int kLeast = -100, kMost = 100, kSample = 2;  // below 2^kSample
    const int exponent = kSample - S::Element::exponent_of(sample);
    return sample == 0 ? 0 : min(max(exponent, kLeast), kMost);
  }

  // What is known of the rows before the last product is complete: log-sum-exps, and what makes
  // outputs their true size.
  __device__ __forceinline__ void announce(const Partial<S>& w, float scale, uint32_t sample) {
    const int exponent = scale_exponent(sample);
    const float up = __int_as_float((127 + exponent) << 23);
    const float down = __int_as_float((127 - exponent) << 23);
    float sums[2], lse[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      sums[row] = attention::quad_sum(w.sums[row][0] + w.sums[row][1]);
      inverse[row] = ptx::reciprocal_approx(sums[row]) * up;
      lse[row] = fmaf(w.max[row], scale, ptx::log2_approx(sums[row]));
    }
    if (lane % 4 < 2) {
      const uint32_t two[2] = {__float_as_uint(lane % 2 == 0 ? lse[0] : lse[1]),
                               __float_as_uint(down)};
      ptx::store_shared_x2(ways.row, two);
      ptx::store_async(ways.remote_row, two, ways.row_counted);
    }
    __syncwarp();
    // Rows without a key: O is 0, LSE is -inf by itself. A branch and not a selection, and not made
    // one by the compiler: it keeps the sums, which it depends on, before the wait for the last
    // product.
    if (__any_sync(0xffffffffU, fminf(sums[0], sums[1]) == 0)) [[unlikely]] {
#pragma unroll 1
      for (int row = 0; row < 2; ++row) {
        asm volatile("" ::: "memory");
        inverse[0] = sums[0] == 0 ? 0.0F : inverse[0];
        inverse[1] = sums[1] == 0 ? 0.0F : inverse[1];
      }
    }
  }

  // Each chunk to the warp that finishes it.
  __device__ __forceinline__ void send(const Partial<S>& w) const {
    constexpr uint32_t kRowHalf = sizeof(smem.merge.outputs[0]);
#pragma unroll
    for (int to = 0; to < kParts; ++to) {
      const int columns = to / 2, rows = to % 2;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        uint32_t four[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float* const two = &w.o[columns * kChunkProducts + 4 * piece + n][2 * rows];
          four[n] = ptx::pack_f16x2(two[0] * inverse[rows], two[1] * inverse[rows]);
        }
        const uint32_t place = rows * kRowHalf + 512 * piece;
        ptx::store_here_or_async(columns == rank, ways.local + place, four, ways.remote + place,
                                 ways.counted + rows * kGroupWarps * 8);
      }
    }
  }

  // Waits for all parts' shares, and adds them; LSE.
  __device__ __forceinline__ void receive() {
    this->meet();
    this->wait_for_rows();
    const float2(&rows)[kParts][8] = smem.merge.rows[group][warp];
    float weights[kParts], down[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const float2 row = rows[i][lane / 4];
      weights[i] = row.x;
      down[i] = row.y;
    }
    const float reference = attention::finite_reference(
        fmaxf(fmaxf(weights[0], weights[1]), fmaxf(weights[2], weights[3])));
#pragma unroll
    for (int i = 0; i < kParts; ++i) weights[i] = ptx::exp2_approx(weights[i] - reference);
    const float sum = (weights[0] + weights[1]) + (weights[2] + weights[3]);
    const float inverse_sum = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
#pragma unroll
    for (int i = 0; i < kParts; ++i) weights[i] *= inverse_sum * down[i];
    if (places.lse != nullptr) {
      this->store_lse(sum == 0 ? kNoKey : (reference + ptx::log2_approx(sum)) * kLn2);
    }
    this->wait_for_outputs();
    constexpr uint32_t kPart = sizeof(smem.merge.outputs[0][0][0]);
    uint32_t shares[kParts][4 * kPieces];  // of lane n % 4 of the quad
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
#pragma unroll
      for (int n = 0; n < 4 * kPieces; ++n) {
        shares[i][n] = ptx::load_shared((ways.inbox ^ 32 * (n % 4)) + i * kPart + n / 4 * 512);
      }
    }
    float total = 0;  // not finite as soon as one output is not
#pragma unroll
    for (int n = 0; n < 4 * kPieces; ++n) {
      float a = 0, b = 0;
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        a = fmaf(ptx::f16_to_float(static_cast<uint16_t>(shares[i][n])), weights[i], a);
        b = fmaf(ptx::f16_to_float(static_cast<uint16_t>(shares[i][n] >> 16)), weights[i], b);
      }
      words[n / 4][n % 4] = S::Element::pack(a, b);
      total += a + b;
    }
    finite = isfinite(total);
  }

  __device__ __forceinline__ void run(const Partial<S>& w) {
    send(w);
    receive();
    this->store();
  }
};

}  // namespace flashcore::cuda::forward_small_sm90

// Combines outputs into O and LSE. The warpgroup that ends first leaves its outputs in K's
// memory, in fp32; the other reads them during its last product, adds its own, and stores.
#pragma once

#include <cstdint>

#include "cuda/attention/large_reference.hpp"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_sm90/common/softmax.cuh"
#include "cuda/forward_sm90/common/task.cuh"
#include "cuda/forward_sm90/latency_wide/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/shared_access.cuh"

namespace flashcore::cuda::forward_sm90::latency_wide {

// The addresses that a lane stores to: computed before the keys have arrived, when there is time for it.
struct Places {
  uint16_t* o;  // eight columns of its first row; the next row is four rows further
  int64_t o_step;
  float* lse;  // null: this lane stores none; at its first row in product order
  int64_t lse_step;
  int columns;  // columns of O from the lane's first on
};

template <class S>
__device__ __forceinline__ Places find_places(const Params& p, const Task& task, int warp,
                                              int lane) {
  Places at;
  const int column = 8 * (lane % 8);
  const int64_t first = task.q_row + task.first_query + 16 * warp;
  at.columns = p.head_dim_v - column;
  at.o = static_cast<uint16_t*>(p.o) +
         (task.batch * p.o_batch + task.head * p.o_head + (first + lane / 8) * p.o_row + column);
  at.o_step = 4 * p.o_row;
  at.lse = nullptr;
  if (p.lse != nullptr && lane % 4 == 0) {
    at.lse = p.lse +
             (task.batch * p.lse_batch + task.head * p.lse_head + (first + lane / 4) * p.lse_row);
  }
  at.lse_step = 8 * p.lse_row;
  ptx::pin(at.o, at.o_step, at.lse, at.lse_step, at.columns);
  return at;  // here, and not later
}

template <class S>
struct Store {
  using Element = typename S::Element;
  using Message = typename S::Message;
  typename S::Shared& smem;
  const Params& p;
  const Task& task;  // of the block
  const Places& places;
  const int sender, warp, lane;  // sender: the warpgroup that ends first

  __device__ __forceinline__ Message& message() const {
    return reinterpret_cast<Message*>(smem.tiles[S::ring_tile(2 * sender, 0)])[warp];
  }

  // Called by the warpgroup that ends first: sends its outputs unchanged, with its
  // references and sums. All its warps have read K, which the outputs overwrite.
  __device__ __forceinline__ void send(const Partial<S>& w) const {
    Message& to = message();
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
      *reinterpret_cast<float4*>(to.outputs[n][lane]) =
          make_float4(w.o[n][0], w.o[n][1], w.o[n][2], w.o[n][3]);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      smem.sums[warp][row][lane] =
          make_float2(w.max[row], attention::quad_sum(w.sums[row][0] + w.sums[row][1]));
    }
    // Every lane arrives, since racecheck orders a lane only by its own arrival. No named barrier
    // between the two warps, which are at different instructions: synccheck reports that as divergence.
    ptx::mbarrier_arrive(ptx::shared_address(&smem.left[warp]));
  }

  // The weights of both warpgroups' outputs, and a row's LSE. If the reference
  // is too large, outputs become infinite and are therefore recomputed.
  struct Weights {
    float own, other, lse;
  };
  __device__ __forceinline__ Weights weights(float own_max, float own_sum, int row) const {
    const float2 other = smem.sums[warp][row][lane];
    const float own_scaled = attention::scaled_max(own_max, p.scale_log2);
    const float other_scaled = attention::scaled_max(other.x, p.scale_log2);
    const float reference = attention::finite_reference(fmaxf(own_scaled, other_scaled));
    const float a = ptx::exp2_approx(own_scaled - reference);
    const float b = ptx::exp2_approx(other_scaled - reference);
    const float sum = fmaf(a, own_sum, b * other.y);
    float inverse = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
    if (fabsf(reference) > attention::kLargestReference) inverse = -kNoKey;
    return {a * inverse, b * inverse, (ptx::log2_approx(sum) + reference) * kLn2};
  }

  using Outputs = float[S::kOutProducts][4];
  // Called by the other warpgroup during its own last product: reads the outputs sent to it, times their weight.
  __device__ __forceinline__ void receive(const Partial<S>& w, Outputs& its, float (&weight)[2],
                                          float (&lse)[2]) const {
    float sums[2];
#pragma unroll
    for (int row = 0; row < 2; ++row)
      sums[row] = attention::quad_sum(w.sums[row][0] + w.sums[row][1]);
    ptx::mbarrier_wait(ptx::shared_address(&smem.left[warp]), 0);
    const Weights top = weights(w.max[0], sums[0], 0), bottom = weights(w.max[1], sums[1], 1);
    weight[0] = top.own, weight[1] = bottom.own;
    lse[0] = top.lse, lse[1] = bottom.lse;
    const Message& from = message();
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
      const float4 four = *reinterpret_cast<const float4*>(from.outputs[n][lane]);
      its[n][0] = four.x * top.other;
      its[n][1] = four.y * top.other;
      its[n][2] = four.z * bottom.other;
      its[n][3] = four.w * bottom.other;
    }
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) ptx::pin(its[n]);
  }

  // Writes half of the columns to shared memory as 16 rows of 128 bytes,
  // swizzled: this turns an accumulator's columns into eight columns per lane.
  template <int kHalf>
  __device__ __forceinline__ void stage(const Partial<S>& w, const Outputs& its,
                                        const float (&weight)[2], uint32_t staged,
                                        uint32_t (&zeros)[2]) const {
    const uint32_t to = staged + lane % 16 * 128 + ((lane % 8) ^ (lane / 16)) * 16;
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t words[2][2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int product = 8 * kHalf + n + j;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          words[j][row] = Element::pack(
              fmaf(w.o[product][2 * row], weight[row], its[product][2 * row]),
              fmaf(w.o[product][2 * row + 1], weight[row], its[product][2 * row + 1]));
          zeros[row] = Element::add_zero_times(words[j][row], zeros[row]);
        }
      }
      ptx::stmatrix_x4(to ^ (16 * n), words[0][0], words[0][1], words[1][0], words[1][1]);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void load(uint4 (&eight)[4], uint32_t staged) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 8 + 4 * (i % 2);  // of eight
      eight[i] = ptx::load_shared_x4(staged + (i / 2 * 8 + row) * 128 + ((lane % 8) ^ row) * 16);
    }
  }
  template <int kHalf>
  __device__ __forceinline__ void write(uint4 (&eight)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = task.first_query + 16 * warp + 4 * i + lane / 8;
      if (S::kTileBounds == TileBounds::checked && query >= task.len_q)
        eight[i] = make_uint4(0, 0, 0, 0);
      if (query < task.rows_q && places.columns > 64 * kHalf) {
        *reinterpret_cast<uint4*>(places.o + i * places.o_step + 64 * kHalf) = eight[i];
      }
    }
  }

  __device__ __forceinline__ void store(const Partial<S>& w, const Outputs& its,
                                        const float (&weight)[2], const float (&lse)[2]) const {
    __syncwarp();  // the message has been read
    const uint32_t staged = ptx::shared_address(&message());
    constexpr uint32_t kHalfBytes = 16 * 128;
    uint32_t zeros[2] = {0, 0};
    uint4 left[4], right[4];
    stage<0>(w, its, weight, staged, zeros);
    load(left, staged);
    stage<1>(w, its, weight, staged + kHalfBytes, zeros);
    write<0>(left);
    load(right, staged + kHalfBytes);
    write<1>(right);
    const int row = task.first_query + 16 * warp;
    if (places.lse != nullptr) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = row + 8 * i + lane / 4;
        if (query < task.rows_q)
          places.lse[i * places.lse_step] = query < task.len_q ? lse[i] : kNoKey;
      }
    }
    const bool finite = ((zeros[0] | zeros[1]) & 0x7fff7fffU) == 0;
    if (!__all_sync(0xffffffffU, finite)) [[unlikely]] {
      __syncwarp();  // earlier stores are overwritten
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        const int first = row + 8 * i;
        const bool its_finite = ((i == 0 ? zeros[0] : zeros[1]) & 0x7fff7fffU) == 0;
        const uint32_t lanes =
            __ballot_sync(0xffffffffU, !its_finite && first + lane / 4 < task.len_q);
        store_exactly<Element, !S::kWhole, 4>(p, lanes, first, 0, kHeadDim / 32);
      }
    }
  }
};

}  // namespace flashcore::cuda::forward_sm90::latency_wide

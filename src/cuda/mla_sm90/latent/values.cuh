// The other two warpgroups: O += P V, a half of V's columns each. A warp of the first also loads.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/output.cuh"
#include "cuda/mla_sm90/latent/block.cuh"
#include "cuda/mla_sm90/latent/loader.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::mla_sm90::latent {

template <class Element>
class Values {
  static constexpr int kColumns = kHeadDimV / 2;

 public:
  __device__ Values(const Params& p, const Maps& maps, const Block& block, int half)
      : p_(p),
        block_(block),
        half_(half),
        warp_(uniform(static_cast<int>(threadIdx.x) % 128 / 32)),
        loads_(half == 0 && warp_ == 0),
        loader_(p, maps, block) {}

  __device__ __forceinline__ void run() {
    float o[kColumns / 8][4];
    if (loads_) loader_.begin();
#pragma unroll 1
    for (int u = 0;; ++u) {
      float factor[2];
      take_factors(factor);
      if (u < block_.count) {
        ptx::mbarrier_wait_together(block_.go(ring_.slot), ring_.parity);
        release();
      }
      if (u > 0) store(block_.units[u - 1], o, factor);
      if (u == block_.count) break;
      attend(block_.units[u], o);
    }
  }

 private:
  // Not kept: registers are for O.
  __device__ static int lane() { return ptx::thread_index() % 32; }

  // Waits for the slot, and reads its rows' factors.
  __device__ __forceinline__ void take_factors(float (&factor)[2]) const {
    ptx::mbarrier_wait_together(block_.ready(ring_.slot), ring_.parity);
#pragma unroll
    for (int i = 0; i < 2; ++i) factor[i] = factor_of(i);
  }
  __device__ __forceinline__ float factor_of(int i) const {
    const float own =
        has_factors(lane()) ? block_state().factor[ring_.slot][row_of(warp_, lane(), i)] : 0.0F;
    return __shfl_sync(0xffffffffU, own, lane() / 4 * 4);
  }

  // This warp has read the slot.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (has_factors(lane())) ptx::mbarrier_arrive(block_.empty(ring_.slot));
    if (loads_ && loader_.more()) {
      ptx::mbarrier_wait_together(block_.empty(ring_.slot), ring_.parity);
      loader_.load(ring_.slot);
    }
    ring_.next();
  }

  __device__ __forceinline__ void attend(const Unit& unit, float (&o)[kColumns / 8][4]) {
    using ptx::Accumulate;
    const int begin = uniform(unit.begin), end = uniform(unit.end);
    Accumulate accumulate = Accumulate::overwrite;
#pragma unroll 1
    for (int key = begin / kTileKeys * kTileKeys; key < end; key += kTileKeys) {
      const uint32_t slot = block_.slot(ring_.slot);
      const uint64_t p = rows_of_slot(slot, kVPanels);
      const uint64_t v =
          tile::smem_descriptor(slot + static_cast<uint32_t>(half_) * (kVPanels / 2) * kPanelBytes,
                                kPanelBytes, kGroupBytes, tile::DescriptorSwizzle::span_128);
      ptx::mbarrier_wait_together(block_.ready(ring_.slot), ring_.parity);
      ptx::mbarrier_wait_together(block_.go(ring_.slot), ring_.parity);
      const bool raised =
          uniform(lane() == 0 ? static_cast<int>(block_state().raised[ring_.slot][warp_]) : 0) != 0;
      if (accumulate == Accumulate::add && raised) rescale(o);
      ptx::warpgroup_pin(o);
      ptx::warpgroup_fence();
#pragma unroll
      for (int k = 0; k < kTileKeys / 16; ++k) {
        const auto step = static_cast<uint32_t>(k);
        Element::multiply_ss(o, advanced(p, 32 * step), advanced(v, 2 * kGroupBytes * step),
                             k == 0 ? accumulate : Accumulate::add);
      }
      ptx::warpgroup_commit();
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(o);
      accumulate = Accumulate::add;
      release();
    }
  }

  __device__ __forceinline__ void rescale(float (&o)[kColumns / 8][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float factor = factor_of(i);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) o[n][2 * i] *= factor, o[n][2 * i + 1] *= factor;
    }
  }

  // Rows of O, or of a partial result. A factor of 0: the rows see no key, whatever o has.
  __device__ __forceinline__ void store(const Unit& unit, const float (&o)[kColumns / 8][4],
                                        const float (&factor)[2]) const {
    using attention::ElementType;
    const bool odd = lane() % 2 != 0;
    const int column = kColumns * half_ + 4 * (lane() % 4 / 2) + (odd ? 8 : 0);
    const int slot = uniform(unit.slot);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = row_of(warp_, lane(), i), head = block_.first_head + row;
      const bool empty = factor[i] == 0, exists = head < p_.heads_q;
      const auto at = [&](int n, int e) { return empty ? 0.0F : o[n][2 * i + e] * factor[i]; };
      const int64_t in_o = attention::decode::output_at(p_, unit.batch, head, unit.q_row);
      if (slot >= 0 || p_.o_type == ElementType::f32) {
        float* const to = (slot >= 0 ? p_.partial_o + block_.partial_row(p_, slot, row) * kHeadDimV
                                     : static_cast<float*>(p_.o) + in_o) +
                          column;
#pragma unroll
        for (int n = 0; n < kColumns / 8; n += 2) {
          const Four<float> low = four_columns(at(n, 0), at(n + 1, 0), odd);
          const Four<float> high = four_columns(at(n, 1), at(n + 1, 1), odd);
          if (!exists) continue;
          *reinterpret_cast<float4*>(to + 8 * n) =
              make_float4(low.first, high.first, low.second, high.second);
        }
        continue;
      }
      auto* const to = static_cast<uint16_t*>(p_.o) + in_o + column;
      const auto pair = [&, is_f16 = p_.o_type == ElementType::f16](int n) {
        return is_f16 ? ptx::pack_f16x2(at(n, 0), at(n, 1)) : ptx::pack_bf16x2(at(n, 0), at(n, 1));
      };
#pragma unroll
      for (int n = 0; n < kColumns / 8; n += 2) {
        const Four<uint32_t> four = four_columns(pair(n), pair(n + 1), odd);
        if (exists) *reinterpret_cast<uint2*>(to + 8 * n) = make_uint2(four.first, four.second);
      }
    }
  }

  // Two lanes have pairs of columns of two products: each gets four columns of one, so that stores are wider.
  template <class T>
  struct Four {
    T first, second;
  };
  template <class T>
  __device__ static Four<T> four_columns(T even, T odd_one, bool odd) {
    const T other = __shfl_xor_sync(0xffffffffU, odd ? even : odd_one, 1);
    return odd ? Four<T>{other, odd_one} : Four<T>{even, other};
  }

  const Params& p_;
  const Block& block_;
  const int half_, warp_;
  const bool loads_;
  Loader loader_;
  Ring ring_;
};

}  // namespace flashcore::cuda::mla_sm90::latent

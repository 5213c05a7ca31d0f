// Bias and masks of pairs: a lane's elements of a tile, read before the wait for the tile's
// keys. They are read one by one: rows begin anywhere, and keys may have any stride.
#pragma once

#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/decode_sm80/split_kv/params.hpp"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::decode_sm80::split_kv {

// For kernels that read neither.
struct NoPairs {};

// Elements of a lane's two rows. Keys past a unit's last read the last one: the tile's mask removes them.
template <int kProducts>
struct LanePairs {
  float bias[2][kProducts][2];
  uint32_t allowed = ~uint32_t{0};  // bit 8 n + e + 4 slot

  // Reads a slot's elements, for the row that begins at `bias_row` and `mask_row`, from key `first` on.
  __device__ __forceinline__ void read(const PairParams& p, int slot, int64_t bias_row,
                                       int64_t mask_row, int first, int last) {
    if (p.bias.data != nullptr) read_bias(p, slot, bias_row, first, last);
    if (p.mask.data == nullptr) return;
    const auto* const row = static_cast<const uint8_t*>(p.mask.data) + mask_row;
    visit([&](int n, int e) {
      remove(slot, n, e, __ldg(row + min(first + 8 * n + e, last) * p.mask.key) == 0);
    });
  }

  // Returns whether the mask removes one of the warp's pairs.
  __device__ __forceinline__ bool removes_any() const {
    return __any_sync(0xffffffffU, allowed != ~uint32_t{0});
  }

  // Returns a slot's bits, as mask_by_bits expects them.
  __device__ __forceinline__ uint32_t lane_bits(int slot) const { return allowed >> (4 * slot); }

  // Returns all bits of a slot's row. Bit 0: the tile's first column.
  __device__ __forceinline__ uint32_t row_bits(int slot, int lane) const {
    uint32_t removed = (~lane_bits(slot) & 0x03030303U) << (2 * (lane % 4));
    removed |= __shfl_xor_sync(0xffffffffU, removed, 1);
    removed |= __shfl_xor_sync(0xffffffffU, removed, 2);
    return ~removed;
  }

 private:
  template <class Visit>
  __device__ static __forceinline__ void visit(Visit visit) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) visit(n, e);
    }
  }

  __device__ __forceinline__ void remove(int slot, int n, int e, bool is_removed) {
    if (is_removed) allowed &= ~(uint32_t{1} << (8 * n + e + 4 * slot));
  }

  // A bias of -inf removes its pair, for any score.
  __device__ __forceinline__ void read_bias(const PairParams& p, int slot, int64_t at, int first,
                                            int last) {
    const auto offset = [&](int n, int e) {
      return at + min(first + 8 * n + e, last) * p.bias.key;
    };
    if (p.bias_type == attention::ElementType::f32) {
      const auto* const data = static_cast<const float*>(p.bias.data);
      visit([&](int n, int e) { bias[slot][n][e] = __ldg(data + offset(n, e)); });
    } else {
      const auto* const data = static_cast<const uint16_t*>(p.bias.data);
      const bool f16 = p.bias_type == attention::ElementType::f16;
      visit([&](int n, int e) {
        const uint16_t bits = __ldg(data + offset(n, e));
        bias[slot][n][e] = f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
      });
    }
    visit([&](int n, int e) { remove(slot, n, e, bias[slot][n][e] == attention::kNoKey); });
  }
};

}  // namespace flashcore::cuda::decode_sm80::split_kv

// Stores elements of O in its type, and records the largest values (docs/semantics.md).
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda/attention/encode_fp8.hpp"
#include "cuda/attention/units.hpp"
#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

__device__ inline void store_as(ElementType type, void* data, int64_t at, float value) {
  switch (type) {
    case ElementType::f32:
      static_cast<float*>(data)[at] = value;
      break;
    case ElementType::f16:
      static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(ptx::pack_f16x2(value, 0));
      break;
    case ElementType::bf16:
      static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(ptx::pack_bf16x2(value, 0));
      break;
    default:  // fp8 is stored elsewhere
      break;
  }
}

// Returns whether a stored element is NaN.
__device__ inline bool is_nan_at(ElementType type, const void* data, int64_t at) {
  const auto bits = [=] { return static_cast<const uint16_t*>(data)[at] & 0x7fffU; };
  switch (type) {
    case ElementType::f32:
      return isnan(static_cast<const float*>(data)[at]);
    case ElementType::f16:
      return bits() > 0x7c00;
    case ElementType::bf16:
      return bits() > 0x7f80;
    default:
      return false;
  }
}

// True if a kernel's parameters have a place for the largest scores.
template <class P>
inline constexpr bool kHasLogits = std::is_base_of_v<LogitParams, P>;

// The largest of a warp's nonnegative numbers. Their bits
// compare like the numbers, with NaN as the largest.
struct Largest {
  uint32_t bits = 0;

  __device__ __forceinline__ void add(float x) {
    bits = max(bits, __float_as_uint(x) & 0x7fffffffU);
  }
  __device__ __forceinline__ void put(const LargestValues& values, const Task& task) {
    if (values.data == nullptr) return;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      bits = max(bits, __shfl_xor_sync(0xffffffffU, bits, step));
    }
    if (threadIdx.x % 32 != 0 || bits == 0) return;
    float* const to = values.data + task.batch * values.batch + task.head * values.head;
    atomicMax(reinterpret_cast<uint32_t*>(to), bits);
  }
};

// The largest of a warp's scores, of any sign, with NaN as the largest.
struct LargestScore {
  float value = -kInfinity;

  // A row's largest score that is no NaN, and its sum: NaN if it sees a score that is NaN or +inf.
  __device__ __forceinline__ void add(float largest, float sum) {
    if (sum != 0) raise(isnan(sum) ? sum : largest);
  }
  // Bits of floats as integers are in order where the sign is +, and in reverse where it is -.
  __device__ __forceinline__ void put(const LargestValues& values, const Task& task) {
    if (values.data == nullptr) return;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      raise(__shfl_xor_sync(0xffffffffU, value, step));
    }
    if (threadIdx.x % 32 != 0) return;
    float* const to = values.data + task.batch * values.batch + task.head * values.head;
    const uint32_t bits = isnan(value) ? 0x7fffffffU : __float_as_uint(value);
    if (bits < kSign) {
      atomicMax(reinterpret_cast<int*>(to), static_cast<int>(bits));
    } else {
      atomicMin(reinterpret_cast<uint32_t*>(to), bits);
    }
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static constexpr uint32_t kSign = 0x80000000U;

  __device__ __forceinline__ void raise(float x) {
    if (x > value || isnan(x)) value = x;
  }
};

// Returns a row's largest probability. `reference`: its largest score, natural, of weight 1 in `sum`.
__device__ __forceinline__ float largest_probability(float reference, float sum, float sink) {
  if (sum == 0) return 0;  // no key; a NaN sum is not 0
  const float top = fmaxf(reference, sink);
  const float share = ptx::exp2_approx((reference - top) * kLog2E);
  const float of_sink = sink == kNoKey ? 0.0F : ptx::exp2_approx((sink - top) * kLog2E);
  return share / (sum * share + of_sink);
}

// Stores single elements of O, which may be fp8, and records the largest.
struct ScaledOutput {
  Fp8Output fp8 = Fp8Output::none;
  float scale = 1;
  Largest largest;

  __device__ __forceinline__ void store(ElementType type, void* data, int64_t at, float value) {
    using attention::fp8_of;
    largest.add(value);
    if (fp8 == Fp8Output::none) {
      store_as(type, data, at, value);
      return;
    }
    const float x = value / scale;
    static_cast<uint8_t*>(data)[at] = static_cast<uint8_t>(
        fp8 == Fp8Output::e4m3 ? fp8_of<attention::kE4M3>(x) : fp8_of<attention::kE5M2>(x));
  }
  __device__ bool left_nan(ElementType type, const void* data, int64_t at) const {
    if (fp8 == Fp8Output::none) return is_nan_at(type, data, at);
    const int bits = static_cast<const uint8_t*>(data)[at] & 0x7f;
    return fp8 == Fp8Output::e4m3 ? bits == 0x7f : bits > 0x7c;
  }
};
__device__ __forceinline__ ScaledOutput output_of(const Fp8Params& p, const Task& task) {
  const HeadVector& s = p.o_scale;
  const float scale =
      s.data == nullptr ? 1.0F : __ldg(s.data + task.batch * s.batch + task.head * s.head);
  return {p.o_fp8, scale, {}};
}

}  // namespace flashcore::cuda::forward_sm80::throughput

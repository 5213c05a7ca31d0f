// Converts rows of any input type to fp32, and fp32 rows to any output type.
#pragma once

#include <cstddef>
#include <cstring>

#include "cpu/simd/simd.hpp"
#include "problem/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

// One decoder per type: T, and load(), a vector of fp32 from kLanes elements.
struct DecodeF32 {
  using T = float;
  static HWY_INLINE VecF load(const T* p) { return hn::LoadU(kF, p); }
};

struct DecodeBF16 {
  using T = uint16_t;
  static HWY_INLINE VecF load(const T* p) {
    const hn::Rebind<uint16_t, F> narrow;
    return hn::BitCast(kF, hn::ShiftLeft<16>(hn::PromoteTo(kU, hn::LoadU(narrow, p))));
  }
};

// A format of at most 16 bits, in the low bits of each lane of `raw`. Subnormals are converted as
// integers, because processors are slow on subnormal operands.
template <FloatFormat kFormat>
HWY_INLINE VecF decode_lanes(VecU raw) {
  constexpr int kSign = kFormat.sign_shift();
  constexpr uint32_t kMagnitude = (uint32_t{1} << kSign) - 1;
  constexpr uint32_t kSmallestNormal = uint32_t{1} << kFormat.mantissa_bits;
  constexpr uint32_t kTop = ((uint32_t{1} << kFormat.exponent_bits) - 1) << kFormat.mantissa_bits;
  constexpr uint32_t kLargest = kFormat.has_infinity ? kTop - 1 : kMagnitude - 1;
  constexpr auto kRebias = static_cast<uint32_t>(127 - kFormat.bias()) << 23;
  // 2^(1 - bias - mantissa_bits), the step of the subnormals
  constexpr auto kStep = static_cast<uint32_t>(128 - kFormat.bias() - kFormat.mantissa_bits) << 23;

  const VecU bits = hn::And(raw, hn::Set(kU, kMagnitude));
  const VecU shifted = hn::ShiftLeft<23 - kFormat.mantissa_bits>(bits);
  const VecU normal = hn::Add(shifted, hn::Set(kU, kRebias));
  const VecF count = hn::ConvertTo(kF, hn::BitCast(kI, bits));
  const VecU subnormal = hn::BitCast(kU, hn::Mul(count, hn::BitCast(kF, hn::Set(kU, kStep))));
  VecU out = hn::IfThenElse(hn::Lt(bits, hn::Set(kU, kSmallestNormal)), subnormal, normal);
  out = hn::IfThenElse(hn::Gt(bits, hn::Set(kU, kLargest)),
                       hn::Or(shifted, hn::Set(kU, uint32_t{0x7F800000})), out);
  const VecU sign = hn::ShiftLeft<31>(hn::ShiftRight<kSign>(raw));
  return hn::BitCast(kF, hn::Or(out, sign));
}

struct DecodeF16 {
  using T = uint16_t;
  static HWY_INLINE VecF load(const T* p) {
#if HWY_ARCH_X86 && HWY_CAP_GE256
    const hn::Rebind<hwy::float16_t, F> narrow;
    return hn::PromoteTo(kF, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(p)));
#else  // in full: conversions without F16C lose infinities and NaN
    const hn::Rebind<uint16_t, F> narrow;
    return decode_lanes<flashcore::kF16>(hn::PromoteTo(kU, hn::LoadU(narrow, p)));
#endif
  }
};

// e5m2 is the upper half of an fp16. e4m3 has one more mantissa bit and one less exponent bit: read
// as fp16 it is 2^-8 of its value, except for NaN.
template <FloatFormat kFormat>
struct DecodeF8 {
  using T = uint8_t;
  static HWY_INLINE VecF load(const T* p) {
    const hn::Rebind<uint8_t, F> narrow;
#if HWY_ARCH_X86 && HWY_CAP_GE256
    const hn::Rebind<uint16_t, F> wide;
    const hn::Rebind<int16_t, F> wide_signed;
    const hn::Rebind<hwy::float16_t, F> half;
    const auto raw = hn::ShiftLeft<8>(hn::PromoteTo(wide, hn::LoadU(narrow, p)));
    if constexpr (kFormat.has_infinity) {
      return hn::PromoteTo(kF, hn::BitCast(half, raw));
    } else {
      const auto twice = hn::BitCast(wide, hn::ShiftRight<1>(hn::BitCast(wide_signed, raw)));
      const auto bits = hn::And(twice, hn::Set(wide, uint16_t{0xBFFF}));
      const auto top = hn::Set(wide, uint16_t{0x3F80});
      const auto is_nan = hn::Eq(hn::And(bits, top), top);
      const auto all = hn::IfThenElse(is_nan, hn::Set(wide, uint16_t{0x7F80}), bits);
      return hn::Mul(hn::PromoteTo(kF, hn::BitCast(half, all)), hn::Set(kF, 256.0f));
    }
#else
    return decode_lanes<kFormat>(hn::PromoteTo(kU, hn::LoadU(narrow, p)));
#endif
  }
};

template <class Decode>
void load_row_as(const void* base, int64_t first, int64_t width, float scale, float* out,
                 int64_t padded) {
  using T = typename Decode::T;
  const T* const in = static_cast<const T*>(base) + first;
  const VecF factor = hn::Set(kF, scale);
  int64_t c = 0;
#pragma GCC unroll 4
  for (; c + kLanes <= width; c += kLanes) {
    hn::StoreU(hn::Mul(Decode::load(in + c), factor), kF, out + c);
  }
  if (c < width) {
    HWY_ALIGN T tail[kLanes] = {};
    std::memcpy(tail, in + c, static_cast<size_t>(width - c) * sizeof(T));
    HWY_ALIGN float wide[kLanes];
    hn::Store(hn::Mul(Decode::load(tail), factor), kF, wide);
    std::memcpy(out + c, wide, static_cast<size_t>(width - c) * sizeof(float));
    c = width;
  }
  for (; c < padded; ++c) out[c] = 0;
}

// Loads elements [first, first + width) of `base` as fp32, times `scale`, then zeros up to `padded`.
inline void load_row(DType dtype, const void* base, int64_t first, int64_t width, float scale,
                     float* out, int64_t padded) {
  switch (dtype) {
    case DType::f16:
      return load_row_as<DecodeF16>(base, first, width, scale, out, padded);
    case DType::bf16:
      return load_row_as<DecodeBF16>(base, first, width, scale, out, padded);
    case DType::f8e4m3:
      return load_row_as<DecodeF8<flashcore::kF8E4M3>>(base, first, width, scale, out, padded);
    case DType::f8e5m2:
      return load_row_as<DecodeF8<flashcore::kF8E5M2>>(base, first, width, scale, out, padded);
    default:
      return load_row_as<DecodeF32>(base, first, width, scale, out, padded);
  }
}

// Returns the bits of `x`, rounded to nearest even in a format of at most 16 bits, in the low bits
// of each lane. Values past the largest are handled like in flashcore::encode.
template <FloatFormat kFormat>
HWY_INLINE VecU encode_lanes(VecF x) {
  constexpr int kShift = 23 - kFormat.mantissa_bits;
  constexpr bool kSaturates = kFormat.sign_shift() == 7;
  constexpr uint32_t kTop = (uint32_t{1} << kFormat.exponent_bits) - 1;
  constexpr uint32_t kOnes = (uint32_t{1} << kFormat.mantissa_bits) - 1;
  constexpr uint32_t kLargest = kFormat.has_infinity
                                    ? ((kTop - 1) << kFormat.mantissa_bits) | kOnes
                                    : (kTop << kFormat.mantissa_bits) | (kOnes - 1);
  constexpr uint32_t kPast = kSaturates ? kLargest : kTop << kFormat.mantissa_bits;
  constexpr uint32_t kNaN = kSaturates ? (kTop << kFormat.mantissa_bits) | kOnes
                                       : (kTop << kFormat.mantissa_bits) | ((kOnes + 1) >> 1);
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.bias()) << 23;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kFormat.bias()) << 23;

  const VecU raw = hn::BitCast(kU, x);
  const VecU size = hn::And(raw, hn::Set(kU, uint32_t{0x7FFFFFFF}));
  const VecU sign = hn::ShiftLeft<kFormat.sign_shift()>(hn::ShiftRight<31>(raw));
  const VecU odd = hn::And(hn::ShiftRight<kShift>(size), hn::Set(kU, uint32_t{1}));
  const VecU half = hn::Set(kU, (uint32_t{1} << (kShift - 1)) - 1 - kRebias);
  VecU bits = hn::ShiftRight<kShift>(hn::Add(hn::Add(size, half), odd));
  if constexpr (kRebias != 0) {
    // Adding a power of two with the last place of the subnormals makes the addition round.
    constexpr uint32_t kMagic =
        static_cast<uint32_t>(127 + 24 - kFormat.bias() - kFormat.mantissa_bits) << 23;
    const VecU magic = hn::Set(kU, kMagic);
    const VecF sum = hn::Add(hn::BitCast(kF, size), hn::BitCast(kF, magic));
    const VecU subnormal = hn::Sub(hn::BitCast(kU, sum), magic);
    bits = hn::IfThenElse(hn::Lt(size, hn::Set(kU, kSmallestNormal)), subnormal, bits);
  }
  bits = hn::IfThenElse(hn::Gt(bits, hn::Set(kU, kLargest)), hn::Set(kU, kPast), bits);
  bits = hn::IfThenElse(hn::Gt(size, hn::Set(kU, uint32_t{0x7F800000})), hn::Set(kU, kNaN), bits);
  return hn::Or(bits, sign);
}

template <FloatFormat kFormat, class T>
void store_row_as(const float* in, int64_t width, VecF factor, T* out, float divisor = 1) {
  HWY_ALIGN uint32_t lanes[kLanes];
  HWY_ALIGN T narrow[kLanes];
  for (int64_t c = 0; c < width; c += kLanes) {
    VecF value = hn::Mul(hn::LoadU(kF, in + c), factor);
    if (divisor != 1) value = hn::Div(value, hn::Set(kF, divisor));
    hn::Store(encode_lanes<kFormat>(value), kU, lanes);
    for (int64_t i = 0; i < kLanes; ++i) narrow[i] = static_cast<T>(lanes[i]);
    const int64_t count = width - c < kLanes ? width - c : kLanes;
    std::memcpy(out + c, narrow, static_cast<size_t>(count) * sizeof(T));
  }
}

// Writes `width` elements at `first` of `base`: `in`, times `scale`; fp8 is also divided by
// `divisor`. `in` is padded to full vectors.
inline void store_row(DType dtype, const float* in, int64_t width, float scale, void* base,
                      int64_t first, float divisor = 1) {
  const VecF factor = hn::Set(kF, scale);
  switch (dtype) {
    case DType::f16:
      return store_row_as<flashcore::kF16>(in, width, factor, static_cast<uint16_t*>(base) + first);
    case DType::bf16:
      return store_row_as<flashcore::kBF16>(in, width, factor,
                                            static_cast<uint16_t*>(base) + first);
    case DType::f8e4m3:
      return store_row_as<flashcore::kF8E4M3>(in, width, factor,
                                              static_cast<uint8_t*>(base) + first, divisor);
    case DType::f8e5m2:
      return store_row_as<flashcore::kF8E5M2>(in, width, factor,
                                              static_cast<uint8_t*>(base) + first, divisor);
    default: {
      float* const out = static_cast<float*>(base) + first;
      int64_t c = 0;
      for (; c + kLanes <= width; c += kLanes) {
        hn::StoreU(hn::Mul(hn::LoadU(kF, in + c), factor), kF, out + c);
      }
      for (; c < width; ++c) out[c] = in[c] * scale;
    }
  }
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();

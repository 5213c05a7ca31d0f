// Widens rows of K and V to fp32 in registers, a few vectors at a time. bf16 and fp8 come out in
// pairs, which is cheapest: of every 2 * kLanes elements the even ones, then the odd ones.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/simd/convert-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

inline constexpr bool kManyRegisters = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64;
inline constexpr int kMostWidened = 4;  // vectors

// One struct per type: T, load(), which makes kVecs vectors from kVecs * kLanes elements, and
// kUnit, the factor that they still need.
template <class Decode>
struct WidenInOrder {
  using T = typename Decode::T;
  static constexpr int kVecs = 1;
  static constexpr bool kPaired = false;
  static constexpr float kUnit = 1;
  static HWY_INLINE void load(const T* p, VecF (&out)[1]) { out[0] = Decode::load(p); }
};

using WidenF32 = WidenInOrder<DecodeF32>;
using WidenF16 = WidenInOrder<DecodeF16>;

struct WidenBF16 {
  using T = uint16_t;
  static constexpr int kVecs = 2;
  static constexpr bool kPaired = true;
  static constexpr float kUnit = 1;
  static HWY_INLINE void load(const T* p, VecF (&out)[2]) {
    const VecU pairs = hn::BitCast(kU, hn::LoadU(hn::Repartition<uint16_t, F>(), p));
    out[0] = hn::BitCast(kF, hn::ShiftLeft<16>(pairs));
    out[1] = hn::BitCast(kF, hn::And(pairs, hn::Set(kU, uint32_t{0xFFFF0000})));
  }
};

#if HWY_ARCH_X86 && HWY_CAP_GE256
// e5m2 is the upper half of an fp16. e4m3 has one more mantissa bit and one less exponent bit: read
// as fp16 it is 2^-8 of its value, except for NaN, where a carry sets the upper bit of the exponent.
template <FloatFormat kFormat>
struct WidenF8 {
  using T = uint8_t;
  static constexpr int kVecs = kManyRegisters ? 4 : 2;
  static constexpr bool kPaired = true;
  static constexpr float kUnit = kFormat.has_infinity ? 1 : 256;

  using Bytes = hn::CappedTag<uint8_t, kVecs * HWY_LANES(float)>;
  using Words = hn::Repartition<uint16_t, Bytes>;

  // Converts the upper byte of each lane.
  static HWY_INLINE hn::Vec<Words> to_half(hn::Vec<Words> raw) {
    const Words words;
    if constexpr (kFormat.has_infinity) {
      return raw;
    } else {
      const hn::RebindToSigned<Words> numbers;
      const auto twice = hn::BitCast(words, hn::ShiftRight<1>(hn::BitCast(numbers, raw)));
      const auto bits = hn::And(twice, hn::Set(words, uint16_t{0xBF80}));
      const auto carried = hn::Add(bits, hn::Set(words, uint16_t{0x0080}));
      return hn::OrAnd(bits, carried, hn::Set(words, uint16_t{0x4000}));
    }
  }

  static HWY_INLINE void load(const T* p, VecF (&out)[kVecs]) {
    const Words words;
    const auto raw = hn::BitCast(words, hn::LoadU(Bytes(), p));
    const auto upper = kFormat.has_infinity ? hn::And(raw, hn::Set(words, uint16_t{0xFF00})) : raw;
    const auto even = to_half(hn::ShiftLeft<8>(raw)), odd = to_half(upper);
    promote(words, even, out);
    promote(words, odd, out + 1);
  }

  // Converts fp16 into every other vector of `out`.
  template <class D>
  static HWY_INLINE void promote(D words, hn::Vec<D> v, VecF* out) {
    const hn::Rebind<hwy::float16_t, F> halves;
    if constexpr (hn::MaxLanes(words) == kLanes) {
      out[0] = hn::PromoteTo(kF, hn::BitCast(halves, v));
    } else {
      const hn::Half<D> half;
      out[0] = hn::PromoteTo(kF, hn::BitCast(halves, hn::LowerHalf(half, v)));
      out[2] = hn::PromoteTo(kF, hn::BitCast(halves, hn::UpperHalf(half, v)));
    }
  }
};
#else
template <FloatFormat kFormat>
struct WidenF8 : WidenInOrder<DecodeF8<kFormat>> {};
#endif

// The last elements of a row, padded with zeros.
template <class Widen>
struct RowEnd {
  using T = typename Widen::T;
  static constexpr size_t kCount = Widen::kVecs * HWY_LANES(float);
  HWY_ALIGN T data[kCount];

  HWY_INLINE RowEnd(const T* from, int64_t count) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86  // does not read past the row
    const hn::CappedTag<T, kCount> d;
    const auto used = hn::FirstN(d, static_cast<size_t>(count));
    hn::Store(hn::MaskedLoad(used, d, from), d, data);
#else
    std::fill_n(data, kCount, T{0});
    std::memcpy(data, from, static_cast<size_t>(count) * sizeof(T));
#endif
  }
};

// Calls call(Widen) with the struct of a type.
template <class Call>
void with_widening(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::f16:
      return call(WidenF16());
    case DType::bf16:
      return call(WidenBF16());
    case DType::f8e4m3:
      return call(WidenF8<flashcore::kF8E4M3>());
    case DType::f8e5m2:
      return call(WidenF8<flashcore::kF8E5M2>());
    default:
      return call(WidenF32());
  }
}

inline bool comes_in_pairs(DType dtype) {
  bool pairs = false;
  with_widening(dtype, [&](auto widen) { pairs = decltype(widen)::kPaired; });
  return pairs;
}

// Permutes `width` elements, a multiple of 2 * kLanes, into the order of pairs, and back.
inline void part_pairs(float* row, int64_t width) {
  float group[2 * kLanes];
  for (int64_t c = 0; c < width; c += 2 * kLanes) {
    std::copy_n(row + c, 2 * kLanes, group);
    for (int64_t i = 0; i < 2 * kLanes; ++i) row[c + i % 2 * kLanes + i / 2] = group[i];
  }
}
inline void join_pairs(float* row, int64_t width) {
  float group[2 * kLanes];
  for (int64_t c = 0; c < width; c += 2 * kLanes) {
    std::copy_n(row + c, 2 * kLanes, group);
    for (int64_t i = 0; i < 2 * kLanes; ++i) row[c + i] = group[i % 2 * kLanes + i / 2];
  }
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();

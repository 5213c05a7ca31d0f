// Converts rows of a wider type to fp8: the largest magnitude, sums per channel, and the conversion.
#pragma once

#include <cstring>

#include "cpu/simd/convert-inl.hpp"
#include "cpu/simd/quantize_rows.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

// Calls body(y, r, c, count) for each vector of y = x - mean: columns [c, c + count) of row r.
// Lanes past count are 0.
template <class Decode, class Body>
HWY_INLINE void each_vector_as(const QuantizeRows& rows, const Body& body) {
  using T = typename Decode::T;
  const int64_t whole = rows.width / kLanes * kLanes, rest = rows.width - whole;
  HWY_ALIGN float mean_tail[kLanes] = {};
  if (rows.mean != nullptr) {
    std::memcpy(mean_tail, rows.mean + whole, static_cast<size_t>(rest) * sizeof(float));
  }
  for (int64_t r = 0; r < rows.rows; ++r) {
    const T* const in = static_cast<const T*>(rows.x) + rows.first + r * rows.stride;
    if (rows.mean == nullptr) {
      for (int64_t c = 0; c < whole; c += kLanes) body(Decode::load(in + c), r, c, kLanes);
    } else {
      for (int64_t c = 0; c < whole; c += kLanes) {
        body(hn::Sub(Decode::load(in + c), hn::LoadU(kF, rows.mean + c)), r, c, kLanes);
      }
    }
    if (rest == 0) continue;
    HWY_ALIGN T tail[kLanes] = {};
    std::memcpy(tail, in + whole, static_cast<size_t>(rest) * sizeof(T));
    body(hn::Sub(Decode::load(tail), hn::Load(kF, mean_tail)), r, whole, rest);
  }
}

template <class Body>
HWY_INLINE void each_vector(const QuantizeRows& rows, const Body& body) {
  switch (rows.dtype) {
    case DType::f16:
      return each_vector_as<DecodeF16>(rows, body);
    case DType::bf16:
      return each_vector_as<DecodeBF16>(rows, body);
    default:
      return each_vector_as<DecodeF32>(rows, body);
  }
}

inline float largest_of_rows(const QuantizeRows& rows) {
  VecF largest = hn::Zero(kF);
  each_vector(rows, [&](VecF y, int64_t, int64_t, int64_t) HWY_ATTR {
    largest = hn::Max(largest, hn::IfThenElseZero(hn::IsFinite(y), hn::Abs(y)));
  });
  return hn::GetLane(hn::MaxOfLanes(kF, largest));
}

inline void add_rows(const QuantizeRows& rows, double* sums) {
  HWY_ALIGN float lanes[kLanes];
  each_vector(rows, [&](VecF y, int64_t, int64_t c, int64_t count) HWY_ATTR {
    hn::Store(hn::IfThenElseZero(hn::IsFinite(y), y), kF, lanes);
    if (count == kLanes) {
      for (int64_t i = 0; i < kLanes; ++i) sums[c + i] += static_cast<double>(lanes[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) sums[c + i] += static_cast<double>(lanes[i]);
    }
  });
}

// Infinities stay infinities in e5m2, and become NaN in e4m3.
template <FloatFormat kFormat>
void convert_rows_as(const QuantizeRows& rows, float scale, uint8_t* out, int64_t stride) {
  constexpr uint32_t kTop = ((uint32_t{1} << kFormat.exponent_bits) - 1) << kFormat.mantissa_bits;
  constexpr uint32_t kInfinity = kFormat.has_infinity ? kTop : 0x7F;
  const hn::Rebind<uint8_t, F> narrow;
  const VecF divisor = hn::Set(kF, scale);
  each_vector(rows, [&](VecF y, int64_t r, int64_t c, int64_t count) HWY_ATTR {
    const VecU raw = hn::BitCast(kU, y);
    const VecU sign = hn::And(hn::ShiftRight<24>(raw), hn::Set(kU, uint32_t{0x80}));
    const VecU infinity = hn::Or(sign, hn::Set(kU, kInfinity));
    const VecU bits = hn::IfThenElse(hn::RebindMask(kU, hn::IsInf(y)), infinity,
                                     encode_lanes<kFormat>(hn::Div(y, divisor)));
    const auto bytes = hn::DemoteTo(narrow, hn::BitCast(kI, bits));
    uint8_t* const to = out + r * stride + c;
    if (count == kLanes) {
      hn::StoreU(bytes, narrow, to);
    } else {
      HWY_ALIGN uint8_t tail[kLanes];
      hn::StoreU(bytes, narrow, tail);
      std::memcpy(to, tail, static_cast<size_t>(count));
    }
  });
}

inline void convert_rows(const QuantizeRows& rows, float scale, const QuantizedRows& out) {
  uint8_t* const to = static_cast<uint8_t*>(out.out) + out.first;
  if (out.dtype == DType::f8e4m3) {
    convert_rows_as<flashcore::kF8E4M3>(rows, scale, to, out.stride);
  } else {
    convert_rows_as<flashcore::kF8E5M2>(rows, scale, to, out.stride);
  }
}

inline constexpr QuantizeKernels kQuantizeKernels{largest_of_rows, add_rows, convert_rows};

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();

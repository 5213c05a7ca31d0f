// exp2 and tanh on vectors. The coefficients minimise the maximum relative error (Remez exchange).
#pragma once

#include "cpu/simd/simd.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

// 2^x for x <= 127. Exact at integers, within 4.4e-7 elsewhere; 0 below -126 (and for -inf), NaN
// for NaN.
HWY_INLINE VecF exp2_of(VecF x) {
  // 1.5 * 2^23 + 127: adding it leaves the nearest integer in the low bits, biased as an exponent.
  const VecF shift = hn::Set(kF, 12583039.0f);
  const VecF shifted = hn::Add(x, shift);
  const VecF r = hn::Sub(x, hn::Sub(shifted, shift));
  VecF p = hn::Set(kF, 0.00111255093f);
  p = hn::MulAdd(p, r, hn::Set(kF, 0.00966628255f));
  p = hn::MulAdd(p, r, hn::Set(kF, 0.0555740047f));
  p = hn::MulAdd(p, r, hn::Set(kF, 0.240223507f));
  p = hn::MulAdd(p, r, hn::Set(kF, 0.693142831f));
  p = hn::MulAdd(p, r, hn::Set(kF, 1.0f));
  const VecF power = hn::BitCast(kF, hn::ShiftLeft<23>(hn::BitCast(kU, shifted)));
  // Not (x >= -126): NaN must stay NaN.
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kF, -126.0f)), hn::Mul(p, power));
}

// tanh(x); NaN for NaN.
HWY_INLINE VecF tanh_of(VecF x) {
  const VecF one = hn::Set(kF, 1.0f);
  const VecF size = hn::Abs(x);
  const VecF x2 = hn::Mul(x, x);
  VecF q = hn::Set(kF, -0.00570498795f);
  q = hn::MulAdd(q, x2, hn::Set(kF, 0.0206390881f));
  q = hn::MulAdd(q, x2, hn::Set(kF, -0.0537397154f));
  q = hn::MulAdd(q, x2, hn::Set(kF, 0.133314422f));
  q = hn::MulAdd(q, x2, hn::Set(kF, -0.333332819f));
  const VecF near = hn::MulAdd(hn::Mul(q, x2), x, x);
  // 1 - 2 / (e^2x + 1) with e^2x as 2^(2 x log2 e), clamped where the result is 1 in fp32.
  const VecF grown = exp2_of(hn::Min(hn::Mul(size, hn::Set(kF, 2.88539008f)), hn::Set(kF, 60.0f)));
  const VecF far = hn::Sub(one, hn::Div(hn::Set(kF, 2.0f), hn::Add(grown, one)));
  const VecF result = hn::IfThenElse(hn::Gt(size, hn::Set(kF, 0.625f)), hn::CopySign(far, x), near);
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();

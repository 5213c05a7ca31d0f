// The largest reference for which a tile's exponents are accurate.
//
// A tile's exponents are fma(score, scale, -reference), where the reference is a row's
// largest score times the scale, rounded. All exponents of a row have the same error, at most
// half a unit in the reference's last place, which cancels in O and is correctly contained in
// the LSE. Beyond some size, however, the error is no longer small: the largest weight of a
// row is then 2^64 or 2^-64 instead of about 1, and the row overflows or vanishes.
//
// Therefore a row with a larger reference is recomputed
// exactly: its largest score is subtracted before scaling.
// So is a row whose sink is +inf or NaN: the sink becomes its reference.
#pragma once

namespace flashcore::cuda::attention {

// In units of log2: the error of exponents is at most 1/2.
inline constexpr float kLargestReference = 0x1p24F;

}  // namespace flashcore::cuda::attention

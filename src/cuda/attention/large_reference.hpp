// Up to which reference a tile's exponents are right.
//
// A tile's exponents are fma(score, scale, -reference), the reference being a row's largest score
// times the scale, rounded. All exponents of a row are off by the same, half a unit in the
// reference's last place at most, which divides out of O and is in the LSE as it should be. Past
// some size it is no longer small, though: the largest weight of a row is then 2^64 or 2^-64, not
// about 1, and the row overflows or vanishes.
//
// So a row with a larger reference is computed again, exactly: its largest score is subtracted
// before anything is scaled.
#pragma once

namespace flashcore::cuda::attention {

// In units of log2: exponents are off by 1/2 at most.
inline constexpr float kLargestReference = 0x1p24F;

}  // namespace flashcore::cuda::attention

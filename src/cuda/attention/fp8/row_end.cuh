// From a row's sums to its factor and its LSE.
#pragma once

#include <limits>

#include "cuda/attention/units.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::attention::fp8 {

// The end of one of a lane's two rows: O *= factor. `largest`: a P of 1 as a probability; then, with
// options, the row's largest one.
struct RowEnd {
  float factor, lse, largest;
};

// `sum`: of P over the whole row; `rounded`: the products' sum of the rounded P; `unit`: the scale of V. O is
// relative to the second, so that an error common to all probabilities cancels; the LSE uses the first. If
// the sink outweighs everything else, the LSE is the sink: in units of log2, the largest sinks overflow fp32.
__device__ __forceinline__ RowEnd end_row(float sum, float rounded, float reference, float sink,
                                          float unit, bool in_use) {
  RowEnd end{0, sink, 0};
  if (!in_use || sum == 0) return end;  // empty; a NaN sum is not
  const float sink_log2 = fminf(sink * kLog2E, std::numeric_limits<float>::max());
  const float top = fmaxf(reference, sink_log2);
  const float factor = ptx::exp2_approx(reference - top);
  const float all = sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx(sink_log2 - top));
  end.factor = __fdividef(sum * factor, all) / rounded * unit;
  end.largest = __fdividef(factor, all);
  if (factor != 0) end.lse = (top + __log2f(all)) * kLn2;
  return end;
}

}  // namespace flashcore::cuda::attention::fp8

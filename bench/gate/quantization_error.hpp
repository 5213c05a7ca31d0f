// The error of quantisation only: attention of fp8 inputs compared with attention of the original
// inputs, both by the fp64 reference.
#pragma once

#include "bench/gate/gates.hpp"
#include "bench/tensors/quantized.hpp"

namespace flashcore::bench {

struct QuantizationError {
  double max_scaled_error = 0;  // |o - r| / max(1, |r|)
  double relative_error = 0;    // |o - r| / |r|, as vectors
  double lse_error = 0;         // the largest; with a smoothed k, after adding scale * dot(q, mean)
};

// `right` is the reference of `wide`.
Result<QuantizationError> quantization_error(const HostProblem& wide, const Reference& right,
                                             QuantizedProblem& narrow, int threads = 0);

}  // namespace flashcore::bench

// The GPU's limits, measured in this process by the kernels' protocol: a matrix product, a copy,
// an empty kernel.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "bench/time/cuda_timer.hpp"

namespace flashcore::bench {

struct MatrixProduct {
  int n = 0;
  double flop_per_second = 0;
  std::string library;  // "libcublas.so.13, version 130101"
  Timing timing;
};

// fp16 or bf16, n x n x n, inputs N(0, 1), fp32 accumulation.
Result<MatrixProduct> time_matrix_product(CudaTimer& timer, DType dtype,
                                          const CudaProtocol& protocol);

struct Copy {
  double bytes_per_second = 0;  // read and write
  Timing timing;
};
Result<Copy> time_copy(CudaTimer& timer, const CudaProtocol& protocol);

Result<Timing> time_empty_kernel(CudaTimer& timer, const CudaProtocol& protocol);

// All of them as evidence: {"empty_kernel": timing, "copy_bytes_per_second", "matrix_product":
// {"bf16": {"tflops", "n", "library"}}}. Failures are left out, and `notes` says why.
nlohmann::ordered_json cuda_ceilings(CudaTimer& timer, const CudaProtocol& protocol,
                                     const std::set<DType>& dtypes, nlohmann::ordered_json& notes);

}  // namespace flashcore::bench

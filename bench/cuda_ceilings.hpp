// What the GPU can do at best, measured in this process by the protocol of the kernels: a matrix
// product, a copy, an empty kernel.
#pragma once

#include <string>

#include "bench/cuda_timer.hpp"

namespace flashcore::bench {

struct MatrixProduct {
  int n = 0;
  double flop_a_second = 0;
  std::string library;  // "libcublas.so.13, version 130101"
  Timing timing;
};

// fp16 or bf16, n x n x n, inputs N(0, 1), fp32 accumulation.
Result<MatrixProduct> time_matrix_product(CudaTimer& timer, DType dtype,
                                          const CudaProtocol& protocol);

struct Copy {
  double bytes_a_second = 0;  // read and written
  Timing timing;
};
Result<Copy> time_copy(CudaTimer& timer, const CudaProtocol& protocol);

Result<Timing> time_empty_kernel(CudaTimer& timer, const CudaProtocol& protocol);

}  // namespace flashcore::bench

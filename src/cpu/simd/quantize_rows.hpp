// The operations of an instruction set on rows that become fp8.
#pragma once

#include <cstdint>

#include "flashcore/flashcore.hpp"

namespace flashcore::cpu {

// Rows of a head: row r begins at element first + r * stride of x, and its values are x - mean.
struct QuantizeRows {
  DType dtype = DType::f32;
  const void* x = nullptr;
  int64_t first = 0;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t width = 0;
  const float* mean = nullptr;  // per channel; null: 0
};

// The destination, addressed like x.
struct QuantizedRows {
  DType dtype = DType::f8e4m3;
  void* out = nullptr;
  int64_t first = 0;
  int64_t stride = 0;
};

struct QuantizeKernels {
  float (*largest)(const QuantizeRows& rows);           // largest finite magnitude
  void (*add)(const QuantizeRows& rows, double* sums);  // adds finite elements, one sum per channel
  void (*convert)(const QuantizeRows& rows, float scale, const QuantizedRows& out);
};

const QuantizeKernels& quantize_kernels_sse4();
const QuantizeKernels& quantize_kernels_avx2();
const QuantizeKernels& quantize_kernels_avx3();
const QuantizeKernels& quantize_kernels_native();

}  // namespace flashcore::cpu

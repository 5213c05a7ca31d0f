// What an instruction set does with rows that become fp8.
#pragma once

#include <cstdint>

#include "flashcore/flashcore.hpp"

namespace flashcore::cpu {

// Rows of a head: row r begins at element first + r * stride of x, and stands for x - mean.
struct QuantizeRows {
  DType dtype = DType::f32;
  const void* x = nullptr;
  int64_t first = 0;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t width = 0;
  const float* mean = nullptr;  // of the channels; null: 0
};

// Where they go: as x.
struct QuantizedRows {
  DType dtype = DType::f8e4m3;
  void* out = nullptr;
  int64_t first = 0;
  int64_t stride = 0;
};

struct QuantizeKernels {
  float (*largest)(const QuantizeRows& rows);           // magnitude of an element that is finite
  void (*add)(const QuantizeRows& rows, double* sums);  // a sum per channel, of those
  void (*convert)(const QuantizeRows& rows, float scale, const QuantizedRows& out);
};

const QuantizeKernels& quantize_kernels_sse4();
const QuantizeKernels& quantize_kernels_avx2();
const QuantizeKernels& quantize_kernels_avx3();
const QuantizeKernels& quantize_kernels_native();

}  // namespace flashcore::cpu

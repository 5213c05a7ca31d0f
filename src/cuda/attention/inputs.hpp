// Tensors of options. Strides are in elements; a tensor is broadcast along a dimension whose stride is 0,
// and absent if its data is null.
#pragma once

#include <cstdint>

namespace flashcore::cuda::attention {

// One number per sequence and head.
struct HeadVector {
  const float* data;
  int64_t batch, head;

  // Returns a factor: 1 if it is absent.
  constexpr float at(int64_t b, int64_t h) const {
    return data == nullptr ? 1.0F : data[b * batch + h * head];
  }
};

// The strides of [batch, head, row, column] with contiguous columns.
struct RowStride {
  int64_t batch = 0, head = 0, row = 0;
};

// [batch, head, query, key].
struct PairMatrix {
  const void* data;
  int64_t batch, head, query, key;
};

}  // namespace flashcore::cuda::attention

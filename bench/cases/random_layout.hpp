// Random layouts as real callers have them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bench/tensors/random.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// [batch, heads, rows, width], with heads outside or inside of rows in memory, with or without
// gaps. Rows start at multiples of 16 bytes if `aligned`.
inline TensorDesc random_layout(Random& random, DType dtype, int64_t batch, int64_t heads,
                                int64_t rows, int64_t width, bool aligned) {
  const auto align = static_cast<int64_t>(aligned ? 16 / std::min<size_t>(size_of(dtype), 16) : 1);
  int64_t pitch = (width + align - 1) / align * align;
  if (random.chance(0.3)) pitch += align * random.integer(1, 3);
  const int64_t gap = random.chance(0.2) ? pitch * random.integer(1, 2) : 0;
  if (random.chance(0.5)) {  // bhsd
    const int64_t head = rows * pitch + gap;
    return TensorDesc::strided(dtype, {batch, heads, rows, width},
                               {heads * head + gap, head, pitch, 1});
  }
  const int64_t row = heads * pitch + gap;  // bshd
  return TensorDesc::strided(dtype, {batch, heads, rows, width}, {rows * row + gap, pitch, row, 1});
}

}  // namespace flashcore::bench

// Converts a descriptor's strides to those that kernels read. Descriptors have been checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// The stride to use for dimension d. 0 for an extent of at most 1, broadcast or not: such a stride
// may hold anything.
inline int64_t used_stride(const TensorDesc& tensor, size_t d) {
  return tensor.shape[d] <= 1 ? 0 : tensor.stride[d];
}

inline RowStrides row_strides(const TensorDesc& tensor, bool packed) {
  if (packed) return {0, used_stride(tensor, 1), used_stride(tensor, 0)};
  return {used_stride(tensor, 0), used_stride(tensor, 1), used_stride(tensor, 2)};
}

inline PairInput pair_strides(const TensorDesc& tensor) {
  return {.present = true,
          .dtype = tensor.dtype,
          .batch = used_stride(tensor, 0),
          .head = used_stride(tensor, 1),
          .query = used_stride(tensor, 2),
          .key = used_stride(tensor, 3)};
}

// Lengths, offsets, a status: one number an entry.
inline VectorInput entry_strides(const std::optional<TensorDesc>& tensor) {
  if (!tensor) return {};
  return {.present = true, .batch = used_stride(*tensor, 0), .head = 0};
}

// The tensor is [Hq] or [B, Hq].
inline VectorInput head_strides(const TensorDesc& tensor) {
  if (tensor.rank == 1) return {.present = true, .batch = 0, .head = used_stride(tensor, 0)};
  return {.present = true, .batch = used_stride(tensor, 0), .head = used_stride(tensor, 1)};
}

}  // namespace flashcore

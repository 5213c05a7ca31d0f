// Which distances between rows the copies of GPU kernels take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "problem/problem.hpp"

namespace flashcore {

// Empty when batches, heads and rows of a tensor all begin at multiples of 16 bytes from its first
// element; otherwise a sentence. Strides of extents of one are never used.
std::string misaligned_rows(std::string_view name, const RowStrides& stride, DType dtype,
                            int64_t batch, int64_t heads, int64_t rows);

// Empty when no stride that is used is zero or negative, which tensor maps cannot express.
std::string unmappable_strides(std::string_view name, const RowStrides& stride, int64_t batch,
                               int64_t heads, int64_t rows);

}  // namespace flashcore

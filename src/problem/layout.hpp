// Checks of a tensor descriptor before its extents and strides are used: rank, extents, byte
// offsets that fit 64 bits, no overlap. Each error names the tensor and says what is wanted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/status.hpp"

namespace flashcore {

// Larger extents are refused, so that sums of a few of them never overflow 64 bits.
inline constexpr int64_t kLargestExtent = (int64_t{1} << 31) - 1;

// "[1, 8, 512, 64]"
std::string shape_text(const TensorDesc& tensor);

// Checks the rank, the extents, and that the byte offset of every element fits 64 bits.
Status check_layout(std::string_view name, const TensorDesc& tensor, int32_t rank,
                    std::string_view wanted_shape);

Status check_contiguous_rows(std::string_view name, const TensorDesc& tensor);

// Sufficient condition that no two elements of an output share an address.
Status check_no_overlap(std::string_view name, const TensorDesc& tensor);

// Checks that the dtype is a known one: descriptors may come from C, where an enum can hold anything.
Status check_dtype_value(std::string_view name, const TensorDesc& tensor);

Status check_dtype(std::string_view name, const TensorDesc& tensor, DType wanted);

}  // namespace flashcore

// Checks of one tensor descriptor.
#include "problem/layout.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace flashcore {
namespace {

__extension__ using int128 = __int128;  // sums of products of 64-bit strides

constexpr int128 magnitude(int64_t value) { return value < 0 ? -int128{value} : int128{value}; }

}  // namespace

std::string shape_text(const TensorDesc& tensor) {
  const int32_t rank = std::clamp(tensor.rank, 0, TensorDesc::kMaxRank);
  return fmt::format("[{}]", fmt::join(tensor.shape.begin(), tensor.shape.begin() + rank, ", "));
}

Status check_layout(std::string_view name, const TensorDesc& tensor, int32_t rank,
                    std::string_view wanted_shape) {
  if (tensor.rank != rank) {
    return invalid("{}: rank is {}, wanted {} for {}", name, tensor.rank, rank, wanted_shape);
  }
  int128 span = 0;
  for (int32_t d = 0; d < rank; ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t extent = tensor.shape[i];
    const int64_t stride = tensor.stride[i];
    if (extent < 0 || extent > kLargestExtent) {
      return invalid("{}: shape {} has extent {} in dimension {}, wanted 0 to {}", name,
                     shape_text(tensor), extent, d, kLargestExtent);
    }
    // Counts one step past the last element: an empty last entry of a packed batch begins there.
    if (extent > 1) span += extent * magnitude(stride);
  }
  // No address space is this large, and a few times as much still fits 64 bits.
  if (span * static_cast<int128>(size_of(tensor.dtype)) > (int128{1} << 56)) {
    return invalid("{}: strides [{}] of shape {} span more than 2^56 bytes, wanted less", name,
                   fmt::join(std::span(tensor.stride.data(), static_cast<size_t>(rank)), ", "),
                   shape_text(tensor));
  }
  return {};
}

Status check_contiguous_rows(std::string_view name, const TensorDesc& tensor) {
  const auto last = static_cast<size_t>(tensor.rank - 1);
  if (tensor.shape[last] > 1 && tensor.stride[last] != 1) {
    return invalid("{}: stride of the last dimension is {}, wanted 1", name, tensor.stride[last]);
  }
  return {};
}

// Sorted by stride, each dimension must step past everything that the smaller ones span.
Status check_no_overlap(std::string_view name, const TensorDesc& tensor) {
  std::array<std::pair<int128, int64_t>, TensorDesc::kMaxRank> dimensions{};  // |stride|, extent
  for (size_t i = 0; i < static_cast<size_t>(tensor.rank); ++i) {
    if (tensor.shape[i] == 0) return {};
    dimensions[i] = {magnitude(tensor.stride[i]), tensor.shape[i]};
  }
  std::sort(dimensions.begin(), dimensions.end());
  int128 reach = 0;
  for (const auto& [stride, extent] : dimensions) {
    if (extent <= 1) continue;
    if (stride <= reach) {
      return invalid(
          "{}: strides [{}] of shape {} make elements overlap, wanted an output whose elements do "
          "not overlap",
          name, fmt::join(std::span(tensor.stride.data(), static_cast<size_t>(tensor.rank)), ", "),
          shape_text(tensor));
    }
    reach += stride * (extent - 1);
  }
  return {};
}

Status check_dtype_value(std::string_view name, const TensorDesc& tensor) {
  const auto value = static_cast<int32_t>(tensor.dtype);
  if (value >= 0 && value <= static_cast<int32_t>(DType::i64)) return {};
  return invalid("{}: dtype is number {}, wanted 0 to {}", name, value,
                 static_cast<int32_t>(DType::i64));
}

Status check_dtype(std::string_view name, const TensorDesc& tensor, DType wanted) {
  if (tensor.dtype == wanted) return {};
  return invalid("{}: dtype is {}, wanted {}", name, to_string(tensor.dtype), to_string(wanted));
}

}  // namespace flashcore

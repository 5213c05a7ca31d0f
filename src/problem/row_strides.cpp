#include "problem/row_strides.hpp"

#include <fmt/format.h>

#include <array>

namespace flashcore {
namespace {

constexpr int64_t kRowAlignment = 16;  // bytes: the widest copy

struct UsedStride {
  std::string_view dimension;
  int64_t extent;
  int64_t stride;
};

std::array<UsedStride, 3> used(const RowStrides& stride, int64_t batch, int64_t heads,
                               int64_t rows) {
  return {
      {{"batch", batch, stride.batch}, {"head", heads, stride.head}, {"row", rows, stride.row}}};
}

}  // namespace

std::string misaligned_rows(std::string_view name, const RowStrides& stride, DType dtype,
                            int64_t batch, int64_t heads, int64_t rows) {
  const auto elements = kRowAlignment / static_cast<int64_t>(size_of(dtype));
  for (const UsedStride& one : used(stride, batch, heads, rows)) {
    if (one.extent > 1 && one.stride % elements != 0) {
      return fmt::format("{}: {} stride is {} elements, wanted a multiple of {} (16 bytes)", name,
                         one.dimension, one.stride, elements);
    }
  }
  return {};
}

std::string unmappable_strides(std::string_view name, const RowStrides& stride, int64_t batch,
                               int64_t heads, int64_t rows) {
  for (const UsedStride& one : used(stride, batch, heads, rows)) {
    if (one.extent > 1 && one.stride <= 0) {
      return fmt::format("{}: {} stride is {}, wanted more than 0 (tensor maps have no others)",
                         name, one.dimension, one.stride);
    }
  }
  return {};
}

}  // namespace flashcore

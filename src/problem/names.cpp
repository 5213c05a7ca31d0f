// Names and sizes of the public enums, and the public descriptors' factories.
#include <algorithm>
#include <array>
#include <utility>

#include "flashcore/flashcore.hpp"

namespace flashcore {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<DTypeRow, 9> kDTypes = {{{DType::f32, "f32", 4},
                                              {DType::f16, "f16", 2},
                                              {DType::bf16, "bf16", 2},
                                              {DType::f8e4m3, "f8e4m3", 1},
                                              {DType::f8e5m2, "f8e5m2", 1},
                                              {DType::boolean, "boolean", 1},
                                              {DType::i32, "i32", 4},
                                              {DType::f64, "f64", 8},
                                              {DType::i64, "i64", 8}}};

const DTypeRow* find(DType dtype) {
  const auto* row = std::find_if(kDTypes.begin(), kDTypes.end(),
                                 [dtype](const DTypeRow& r) { return r.dtype == dtype; });
  return row == kDTypes.end() ? nullptr : row;
}

}  // namespace

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_argument:
      return "invalid_argument";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::out_of_memory:
      return "out_of_memory";
    case StatusCode::device_error:
      return "device_error";
    case StatusCode::internal:
      return "internal";
  }
  return "unknown";
}

std::string_view to_string(DType dtype) {
  const DTypeRow* row = find(dtype);
  return row == nullptr ? "unknown" : row->name;
}

size_t size_of(DType dtype) {
  const DTypeRow* row = find(dtype);
  return row == nullptr ? 1 : row->size;
}

std::optional<DType> dtype_from_string(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

TensorDesc TensorDesc::contiguous(DType dtype, std::initializer_list<int64_t> shape) {
  TensorDesc tensor;
  tensor.dtype = dtype;
  tensor.rank = static_cast<int32_t>(shape.size());
  std::copy_n(shape.begin(), std::min<size_t>(shape.size(), kMaxRank), tensor.shape.begin());
  uint64_t stride = 1;  // unsigned: an absurd shape wraps around here, and make_plan refuses it
  for (int32_t d = std::min(tensor.rank, kMaxRank); d-- > 0;) {
    const auto i = static_cast<size_t>(d);
    tensor.stride[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(tensor.shape[i], 1));
  }
  return tensor;
}

TensorDesc TensorDesc::strided(DType dtype, std::initializer_list<int64_t> shape,
                               std::initializer_list<int64_t> stride) {
  TensorDesc tensor = contiguous(dtype, shape);
  if (stride.size() != shape.size()) tensor.rank = -1;  // refused by make_plan
  std::copy_n(stride.begin(), std::min<size_t>(stride.size(), kMaxRank), tensor.stride.begin());
  return tensor;
}

}  // namespace flashcore

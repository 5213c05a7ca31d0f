#include "bench/io/tensor.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "problem/status.hpp"

namespace flashcore::io {
namespace {

std::optional<DType> dtype_of(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return DType::f32;
    case StoredType::f16:
      return DType::f16;
    case StoredType::bf16:
      return DType::bf16;
    case StoredType::f8e4m3:
      return DType::f8e4m3;
    case StoredType::f8e5m2:
      return DType::f8e5m2;
    case StoredType::boolean:
      return DType::boolean;
    case StoredType::i32:
    case StoredType::i64:
      return DType::i32;
    case StoredType::f64:
      return DType::f64;
    case StoredType::raw8:
    case StoredType::raw16:
    case StoredType::other:
      break;
  }
  return std::nullopt;
}

// Elements converted at a time: limits memory for any tensor size.
constexpr size_t kChunk = 4096;

Status read_narrowed(const ByteSource& source, const TensorInfo& info, std::span<std::byte> out) {
  std::array<int64_t, kChunk> wide{};
  const size_t count = info.bytes / sizeof(int64_t);
  for (size_t first = 0; first < count; first += kChunk) {
    const std::span part = std::span(wide).first(std::min(kChunk, count - first));
    FLASHCORE_RETURN_IF_ERROR(
        source.read(info.offset + first * sizeof(int64_t), std::as_writable_bytes(part)));
    for (size_t i = 0; i < part.size(); ++i) {
      const auto narrow = static_cast<int32_t>(part[i]);
      if (narrow != part[i]) {
        return invalid("{}: tensor '{}' has {} as element {}, wanted a number of 32 bits",
                       source.name(), info.name, part[i], first + i);
      }
      std::memcpy(out.data() + (first + i) * sizeof(narrow), &narrow, sizeof(narrow));
    }
  }
  return {};
}

}  // namespace

size_t size_of(StoredType type) {
  switch (type) {
    case StoredType::f64:
    case StoredType::i64:
      return 8;
    case StoredType::f32:
    case StoredType::i32:
      return 4;
    case StoredType::f16:
    case StoredType::bf16:
    case StoredType::raw16:
      return 2;
    case StoredType::f8e4m3:
    case StoredType::f8e5m2:
    case StoredType::boolean:
    case StoredType::raw8:
      return 1;
    case StoredType::other:
      break;
  }
  return 0;
}

std::optional<uint64_t> element_count(std::span<const int64_t> shape) {
  uint64_t count = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty = empty || extent == 0;
  }
  if (empty) return 0;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(extent), &count)) return std::nullopt;
  }
  if (count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return count;
}

std::string to_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<DType> loaded_dtype(const ByteSource& source, const TensorInfo& info,
                           std::optional<DType> raw) {
  if (const std::optional<DType> dtype = dtype_of(info.type)) return *dtype;
  if (info.type == StoredType::other) {
    return invalid(
        "{}: tensor '{}' has dtype {}, wanted F32, F16, BF16, F8_E4M3, F8_E5M2, F64, BOOL, I32 or "
        "I64",
        source.name(), info.name, info.type_name);
  }
  const bool wide = info.type == StoredType::raw16;
  const bool fits = raw && (wide ? *raw == DType::bf16 || *raw == DType::f16
                                 : *raw == DType::f8e4m3 || *raw == DType::f8e5m2);
  if (fits) return *raw;
  return invalid("{}: dtype {} does not say what its bytes mean, wanted --dtype {}", source.name(),
                 info.type_name, wide ? "bf16" : "f8e4m3 or f8e5m2");
}

Status read_elements(const ByteSource& source, const TensorInfo& info, std::span<std::byte> out) {
  const size_t wanted = info.type == StoredType::i64 ? info.bytes / 2 : info.bytes;
  if (out.size() != wanted) {
    return {StatusCode::internal, fmt::format("{}: tensor '{}' has {} bytes, wanted {}",
                                              source.name(), info.name, wanted, out.size())};
  }
  if (info.type == StoredType::i64) return read_narrowed(source, info, out);
  return source.read(info.offset, out);
}

}  // namespace flashcore::io

// A tensor of a file: its header entry, and reading its elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/io/byte_source.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::io {

// Element types that files contain and this program reads.
enum class StoredType {
  f32,
  f16,
  bf16,
  f8e4m3,
  f8e5m2,
  boolean,
  i32,
  f64,
  i64,   // narrowed to i32
  raw8,  // .npy stores bf16 and fp8 as bytes without a type
  raw16,
  other,  // listed, but not read
};

size_t size_of(StoredType type);  // 0 for other

// One entry of a header, checked against the file's size.
struct TensorInfo {
  std::string name;
  std::string type_name;  // as the file writes it
  StoredType type = StoredType::other;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // offset of the first byte in the file
  uint64_t bytes = 0;
};

// Elements of a shape; nothing if they do not fit 63 bits or an extent is negative.
std::optional<uint64_t> element_count(std::span<const int64_t> shape);

std::string to_text(std::span<const int64_t> shape);  // "[2, 8, 512, 64]"

// The type of the elements in memory: i64 is narrowed to i32, and `raw` is the type of raw8 and
// raw16. An error for types that are not read.
Result<DType> loaded_dtype(const ByteSource& source, const TensorInfo& info,
                           std::optional<DType> raw = std::nullopt);

// Reads the elements of one entry, row-major, into `out`, which must have exactly their size. An
// i64 that does not fit 32 bits is refused.
Status read_elements(const ByteSource& source, const TensorInfo& info, std::span<std::byte> out);

}  // namespace flashcore::io

// A tensor of a file: what its header says of it, and its data in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/io/byte_source.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::io {

// Element types that files hold and this program reads.
enum class StoredType {
  f32,
  f16,
  bf16,
  f8e4m3,
  f8e5m2,
  boolean,
  i32,
  f64,
  i64,    // narrowed to i32
  raw8,   // .npy has no name for bf16 and fp8 and stores them as bytes without a meaning
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
  uint64_t offset = 0;  // of its first byte in the file
  uint64_t bytes = 0;
};

// Elements of a shape; nothing when they do not fit 63 bits or an extent is negative.
std::optional<uint64_t> element_count(std::span<const int64_t> shape);

std::string to_text(std::span<const int64_t> shape);  // "[2, 8, 512, 64]"

// Bytes aligned for any vector unit and not initialised.
class AlignedBytes {
 public:
  static constexpr std::align_val_t kAlignment{256};

  AlignedBytes() = default;
  explicit AlignedBytes(size_t size);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Row-major.
struct Tensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  AlignedBytes data;
};

// Reads one entry of `source`. `raw` is what nameless types (raw8, raw16) hold; i64 is narrowed,
// and refused where a value does not fit.
Result<Tensor> load_tensor(const ByteSource& source, const TensorInfo& info,
                           std::optional<DType> raw = std::nullopt);

}  // namespace flashcore::io

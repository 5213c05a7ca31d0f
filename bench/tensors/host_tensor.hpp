// A tensor in host memory, surrounded by canaries.
//
//   | guard | ... element [0, 0, ...] ... gaps between strided rows ... | guard |
//
// Every byte starts as 0xFF, which is NaN in every floating-point type: an output element that is
// not written, or an input read outside of the tensor, appears as NaN; canaries_intact() detects
// a write outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// TensorDesc::contiguous for a shape that is known only at run time.
TensorDesc contiguous(DType dtype, std::span<const int64_t> shape);
TensorDesc contiguous_like(const TensorDesc& like, DType dtype);

// Bytes of the elements without gaps between rows; a double holds any product.
double element_bytes(const TensorDesc& desc);

// Returns whether an element is NaN, as poison is.
bool has_nan(DType dtype, std::span<const std::byte> elements);

// What is wrong with an output apart from its values.
std::string overrun_sentence(std::string_view name);
std::string unwritten_sentence(std::string_view name);

class HostTensor {
 public:
  static constexpr size_t kGuardBytes = 256;

  explicit HostTensor(const TensorDesc& desc);

  const TensorDesc& desc() const { return desc_; }
  int64_t elements() const;
  bool is_dense() const { return dense_; }  // element i lies i elements from the first

  // The whole memory including guards, and the offset of element [0, 0, ...] in it: for a copy on
  // another device. The memory is aligned to 256 bytes.
  std::span<std::byte> memory() { return {storage(), bytes_}; }
  std::span<const std::byte> memory() const { return {storage(), bytes_}; }
  size_t origin() const { return origin_; }
  void* data() { return storage() + origin_; }
  const void* data() const { return storage() + origin_; }
  // The elements of a dense tensor.
  std::span<std::byte> bytes() { return memory().subspan(origin_, dense_bytes()); }
  std::span<const std::byte> bytes() const { return memory().subspan(origin_, dense_bytes()); }

  // An element by its index in row-major order, for any strides.
  double get(int64_t element) const;
  std::vector<double> values() const;       // all elements
  void set(int64_t element, double value);  // rounds to nearest even
  void fill(const std::function<double()>& next);
  // Sets the first elements, in row-major order.
  template <class Values>
  void assign(const Values& values) {
    int64_t element = 0;
    for (const auto value : values) set(element++, static_cast<double>(value));
  }

  void poison();  // sets every byte, elements included, to 0xFF
  bool canaries_intact() const;
  bool has_nan() const;                               // or an element that is still poison
  bool same_elements(const HostTensor& other) const;  // bit for bit

 private:
  std::byte* storage() { return buffer_.data() + shift_; }
  const std::byte* storage() const { return buffer_.data() + shift_; }
  size_t dense_bytes() const { return static_cast<size_t>(element_bytes(desc_)); }
  int64_t offset_of(int64_t element) const;  // offset in elements from the origin

  TensorDesc desc_;
  bool dense_;  // element i lies at offset i
  std::vector<std::byte> buffer_;
  size_t shift_ = 0;  // aligns to 256 bytes
  size_t bytes_ = 0;
  size_t origin_ = 0;
};

}  // namespace flashcore::bench

#include "bench/tensors/host_tensor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "problem/dtype.hpp"

namespace flashcore::bench {
namespace {

constexpr std::byte kCanary{0xFF};
constexpr size_t kAlignment = 256;

// Returns whether elements are contiguous in row-major order.
bool lies_densely(const TensorDesc& desc) {
  int64_t stride = 1;
  for (size_t d = static_cast<size_t>(desc.rank); d-- > 0;) {
    if (desc.shape[d] != 1 && desc.stride[d] != stride) return false;
    stride *= desc.shape[d];
  }
  return true;
}

template <class Bits>
bool any_nan(std::span<const std::byte> bytes, Bits infinity) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    if ((bits & kMagnitude) > infinity) return true;
  }
  return false;
}

}  // namespace

TensorDesc contiguous(DType dtype, std::span<const int64_t> shape) {
  TensorDesc desc;
  desc.dtype = dtype;
  desc.rank = static_cast<int32_t>(shape.size());
  uint64_t stride = 1;  // unsigned: overflow wraps, and make_plan refuses it
  // make_plan refuses more dimensions
  for (size_t d = std::min<size_t>(shape.size(), TensorDesc::kMaxRank); d-- > 0;) {
    desc.shape[d] = shape[d];
    desc.stride[d] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(shape[d], 1));
  }
  return desc;
}

TensorDesc contiguous_like(const TensorDesc& like, DType dtype) {
  return contiguous(dtype, std::span(like.shape).first(static_cast<size_t>(like.rank)));
}

double element_bytes(const TensorDesc& desc) {
  auto bytes = static_cast<double>(size_of(desc.dtype));
  for (size_t d = 0; d < static_cast<size_t>(desc.rank); ++d) {
    bytes *= static_cast<double>(desc.shape[d]);
  }
  return bytes;
}

bool has_nan(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::f16) return any_nan<uint16_t>(bytes, 0x7C00);
  if (dtype == DType::bf16) return any_nan<uint16_t>(bytes, 0x7F80);
  if (dtype == DType::f32) return any_nan<uint32_t>(bytes, 0x7F800000);
  for (size_t i = 0; i < bytes.size() / size_of(dtype); ++i) {
    if (std::isnan(load_element(dtype, bytes.data(), static_cast<int64_t>(i)))) return true;
  }
  return false;
}

std::string overrun_sentence(std::string_view name) {
  return std::string(name) + ": bytes outside of its elements were written";
}

std::string unwritten_sentence(std::string_view name) {
  return std::string(name) + " has elements that are NaN or were not written";
}

HostTensor::HostTensor(const TensorDesc& desc) : desc_(desc), dense_(lies_densely(desc)) {
  int64_t lowest = 0;
  int64_t highest = 0;
  for (size_t d = 0; d < static_cast<size_t>(desc.rank); ++d) {
    const int64_t reach = desc.shape[d] > 0 ? (desc.shape[d] - 1) * desc.stride[d] : 0;
    (reach < 0 ? lowest : highest) += reach;
  }
  const size_t size = size_of(desc.dtype);
  origin_ = kGuardBytes + static_cast<size_t>(-lowest) * size;
  const size_t span = elements() > 0 ? static_cast<size_t>(highest - lowest + 1) * size : 0;
  bytes_ = kGuardBytes + span + kGuardBytes;
  buffer_.assign(bytes_ + kAlignment, kCanary);
  const size_t address = reinterpret_cast<size_t>(buffer_.data());
  shift_ = (kAlignment - address % kAlignment) % kAlignment;
}

int64_t HostTensor::elements() const {
  int64_t count = 1;
  for (size_t d = 0; d < static_cast<size_t>(desc_.rank); ++d) count *= desc_.shape[d];
  return count;
}

int64_t HostTensor::offset_of(int64_t element) const {
  if (dense_) return element;
  int64_t offset = 0;
  for (size_t d = static_cast<size_t>(desc_.rank); d-- > 0;) {
    offset += element % desc_.shape[d] * desc_.stride[d];
    element /= desc_.shape[d];
  }
  return offset;
}

double HostTensor::get(int64_t element) const {
  return load_element(desc_.dtype, data(), offset_of(element));
}

void HostTensor::set(int64_t element, double value) {
  store_element(desc_.dtype, data(), offset_of(element), value);
}

void HostTensor::fill(const std::function<double()>& next) {
  const int64_t count = elements();
  for (int64_t i = 0; i < count; ++i) set(i, next());
}

void HostTensor::poison() { std::fill(buffer_.begin(), buffer_.end(), kCanary); }

bool HostTensor::canaries_intact() const {
  if (dense_) {
    const std::byte *const end = storage() + bytes_, *const first = storage() + origin_;
    const std::byte* const last = first + dense_bytes();
    const auto intact = [](std::byte b) { return b == kCanary; };
    return std::all_of(storage(), first, intact) && std::all_of(last, end, intact);
  }
  std::vector<bool> owned(bytes_, false);
  const auto size = static_cast<int64_t>(size_of(desc_.dtype));
  const int64_t count = elements();
  for (int64_t i = 0; i < count; ++i) {
    const size_t first = origin_ + static_cast<size_t>(offset_of(i) * size);
    std::fill_n(owned.begin() + static_cast<std::ptrdiff_t>(first), size, true);
  }
  for (size_t i = 0; i < bytes_; ++i) {
    if (!owned[i] && storage()[i] != kCanary) return false;
  }
  return true;
}

std::vector<double> HostTensor::values() const {
  std::vector<double> out(static_cast<size_t>(elements()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = get(static_cast<int64_t>(i));
  return out;
}

bool HostTensor::has_nan() const {
  if (dense_) return bench::has_nan(desc_.dtype, bytes());
  for (int64_t i = 0; i < elements(); ++i) {
    if (std::isnan(get(i))) return true;
  }
  return false;
}

bool HostTensor::same_elements(const HostTensor& other) const {
  if (desc_.dtype != other.desc_.dtype || elements() != other.elements()) return false;
  const size_t size = size_of(desc_.dtype);
  const auto stride = static_cast<int64_t>(size);
  const int64_t count = elements();
  for (int64_t i = 0; i < count; ++i) {
    const auto* a = static_cast<const std::byte*>(data()) + offset_of(i) * stride;
    const auto* b = static_cast<const std::byte*>(other.data()) + other.offset_of(i) * stride;
    if (std::memcmp(a, b, size) != 0) return false;
  }
  return true;
}

}  // namespace flashcore::bench

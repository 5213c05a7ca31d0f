#include "bench/run/largest_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "bench/tensors/host_tensor.hpp"
#include "problem/dtype.hpp"

namespace flashcore::bench {
namespace {

// Bits without the sign rise with the magnitude.
template <class Bits>
double largest_of(DType dtype, const void* data, int64_t elements) {
  const auto* const bits = static_cast<const Bits*>(data);
  constexpr auto kMagnitude = static_cast<Bits>(~(Bits{1} << (8 * sizeof(Bits) - 1)));
  Bits most = 0;
  for (int64_t i = 0; i < elements; ++i) {
    most = std::max(most, static_cast<Bits>(bits[i] & kMagnitude));
  }
  return load_element(dtype, &most, 0);
}

double largest_of(const HostTensor& tensor) {
  const DType dtype = tensor.desc().dtype;
  if (size_of(dtype) == 1) return largest_of<uint8_t>(dtype, tensor.data(), tensor.elements());
  if (size_of(dtype) == 2) return largest_of<uint16_t>(dtype, tensor.data(), tensor.elements());
  return largest_of<uint32_t>(dtype, tensor.data(), tensor.elements());
}

// How far a number may be from what it was rounded from, as a part of it.
double rounding_of(DType dtype) {
  if (dtype == DType::f8e5m2) return 0x1p-3;
  if (dtype == DType::f8e4m3) return 0x1p-4;
  if (dtype == DType::bf16) return 0x1p-8;
  return dtype == DType::f16 ? 0x1p-10 : 0x1p-22;
}

}  // namespace

std::string largest_values_failure(const Problem& problem, const ReadElements& inputs,
                                   const ReadElements& outputs) {
  const int64_t heads = problem.o.shape[0] * problem.o.shape[1];
  const int64_t elements = problem.o.shape[2] * problem.o.shape[3];
  HostTensor scale(TensorDesc::contiguous(DType::f32, {1})), amax(scale.desc());
  HostTensor o(TensorDesc::contiguous(problem.o.dtype, {elements}));
  const double most = 1 + 2 * gate_limits(problem.q.dtype).lse_error;  // docs/semantics.md
  scale.set(0, 1);
  if (problem.o_scale) inputs("o_scale", 0, scale);
  for (int64_t head = 0; head < heads; ++head) {
    if (problem.amax_o) {
      outputs("amax_o", head, amax);
      outputs("o", head * elements, o);
      const double got = amax.get(0), want = largest_of(o) * scale.get(0);
      if (!(std::abs(got - want) <= rounding_of(problem.o.dtype) * want)) {
        return fmt::format("amax_o of head {} is {}, wanted what {} was rounded from", head, got,
                           want);
      }
    }
    if (problem.amax_s) {
      outputs("amax_s", head, amax);
      if (const double got = amax.get(0); !(got > 0 && got <= most)) {
        return fmt::format("amax_s of head {} is {}, wanted a probability", head, got);
      }
    }
  }
  return {};
}

}  // namespace flashcore::bench

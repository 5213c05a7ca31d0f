#include "bench/run/largest_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bench/tensors/host_tensor.hpp"
#include "problem/dtype.hpp"
#include "problem/fp8_scale.hpp"

namespace flashcore::bench {
namespace {

// Without the sign, bits increase with the magnitude.
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

// The largest relative rounding error of a type.
double rounding_of(DType dtype) {
  if (dtype == DType::f8e5m2) return 0x1p-3;
  if (dtype == DType::f8e4m3) return 0x1p-4;
  if (dtype == DType::bf16) return 0x1p-8;
  return dtype == DType::f16 ? 0x1p-10 : 0x1p-22;
}

// The number that larger ones saturate to; 0 if they do not.
double saturates_at(DType dtype) {
  if (size_of(dtype) != 1) return 0;
  return dtype == DType::f8e5m2 ? kLargestE5M2 : kLargestE4M3;
}

// The index of a head in [B|1, H|1].
size_t element_of_head(const TensorDesc& all, int64_t batch, int64_t head) {
  return static_cast<size_t>((all.shape[0] == 1 ? 0 : batch) * all.shape[1] +
                             (all.shape[1] == 1 ? 0 : head));
}

// The bounds that O's largest elements imply for an element of amax_o.
struct Largest {
  double value = 0;
  bool saturated = false;  // then it may be any larger number
};

std::vector<Largest> largest_values(const Problem& problem, const ReadElements& inputs,
                                    const ReadElements& outputs) {
  const TensorDesc& desc = *problem.amax_o;
  std::vector<Largest> found(static_cast<size_t>(desc.shape[0] * desc.shape[1]));
  const int64_t elements = problem.o.shape[2] * problem.o.shape[3];
  HostTensor o(TensorDesc::contiguous(problem.o.dtype, {elements}));
  HostTensor scale(TensorDesc::contiguous(DType::f32, {1}));
  scale.set(0, 1);
  for (int64_t b = 0; b < problem.o.shape[0]; ++b) {
    for (int64_t h = 0; h < problem.o.shape[1]; ++h) {
      Part head{};
      head.entry = b, head.heads_q = {h, 1}, head.queries = {0, problem.o.shape[2]};
      if (problem.o_scale) {
        Piece(problem, "o_scale", *problem.o_scale, head).read(inputs, scale);
      }
      Piece(problem, "o", problem.o, head).read(outputs, o);
      const double stored = largest_of(o);
      Largest& one = found[element_of_head(desc, b, h)];
      one.value = std::max(one.value, stored * scale.get(0));
      one.saturated |= stored > 0 && stored == saturates_at(problem.o.dtype);
    }
  }
  return found;
}

}  // namespace

std::string largest_values_failure(const Problem& problem, const ReadElements& inputs,
                                   const ReadElements& outputs) {
  HostTensor amax(TensorDesc::contiguous(DType::f32, {1}));
  if (problem.amax_o) {
    const double rounding = rounding_of(problem.o.dtype);
    const std::vector<Largest> largest = largest_values(problem, inputs, outputs);
    for (size_t i = 0; i < largest.size(); ++i) {
      outputs("amax_o", static_cast<int64_t>(i), amax);
      const double got = amax.get(0), want = largest[i].value;
      const bool beyond = largest[i].saturated && got > want;
      if (!(std::abs(got - want) <= rounding * want) && !beyond) {
        return fmt::format("amax_o of head {} is {}, wanted what {} was rounded from", i, got,
                           want);
      }
    }
  }
  if (problem.amax_s) {
    const double most = 1 + 2 * gate_limits(problem.q.dtype).lse_error;  // docs/accuracy.md
    for (int64_t i = 0; i < problem.amax_s->shape[0] * problem.amax_s->shape[1]; ++i) {
      outputs("amax_s", i, amax);
      if (const double got = amax.get(0); !(got > 0 && got <= most)) {
        return fmt::format("amax_s of head {} is {}, wanted a probability", i, got);
      }
    }
  }
  return {};
}

}  // namespace flashcore::bench

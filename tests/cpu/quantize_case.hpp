// Random quantisations, and the "Quantisation" section of docs/semantics.md written a second time,
// element by element. The tests of every backend use it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "flashcore/quantize.hpp"

namespace flashcore::testing {

struct QuantizeCase {
  Quantize what;
  std::map<std::string, bench::HostTensor> tensors;  // x, x_out, scale, and the optional ones

  bench::HostTensor& at(const std::string& name) { return tensors.at(name); }
  template <class T>
  T* pointer(const std::string& name) {
    return tensors.contains(name) ? static_cast<T*>(at(name).data()) : nullptr;
  }
  QuantizeArguments arguments();
  std::string text() const;
};

// Every type, layout, granularity and length; sometimes NaN, infinities and rows of zeros, and NaN
// in rows that are not in use.
QuantizeCase random_quantize(bench::Random& random, int64_t most_rows);

// A case with x from N(0, 1) and dense tensors.
QuantizeCase make_quantize(const Quantize& what, uint64_t seed);

// Compares a run's output with the definition: bits, except for the last bit of a mean.
void expect_quantized(QuantizeCase& one, const std::string& where);

}  // namespace flashcore::testing

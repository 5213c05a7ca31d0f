// Random quantisations, and the "Quantisation" section of docs/semantics.md written a second time,
// element by element. The tests of every backend use it.
#pragma once

#include <string>

#include "bench/tensors/random.hpp"
#include "flashcore/quantize.hpp"
#include "tests/cpu/call_case.hpp"

namespace flashcore::testing {

struct QuantizeCase : CallCase<Quantize> {
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

// The worst data for probabilities that are rounded to e4m3, each kind with its own gates: the rows
// of the table in docs/accuracy.md. The gates were fixed before any kernel was timed, from
// rounding alone, with P = 2^5 for the largest score of a row: the largest errors over eight seeds,
// plus a third.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "bench/cases/score_cases.hpp"

namespace flashcore::bench {

// One kind of data: a transformation of inputs from N(0, 1).
struct Fp8Data {
  std::string name;
  std::function<void(HostProblem&)> bend;
};
std::vector<Fp8Data> fp8_data();

// Draws such inputs in f32, with an f32 O and an LSE. `q` and `k`: [1, H, S, D].
HostProblem draw(const Fp8Data& data, std::initializer_list<int64_t> q,
                 std::initializer_list<int64_t> k, uint64_t seed);

// Sets element d of row r of all heads to change(r, d, old value).
void change_rows(HostTensor& tensor, const std::function<double(int64_t, int64_t, double)>& change);

// "fp8/outliers/64x1000x128": a subset of score_cases().
std::vector<ScoreCase> fp8_cases();

}  // namespace flashcore::bench

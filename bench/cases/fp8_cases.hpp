// Data on which probabilities that are rounded to e4m3 are worst, each with gates of its own: the
// rows of the table in docs/accuracy.md. They were fixed before a kernel was timed, from the
// rounding alone, P = 2^5 for the largest score of a row: the largest errors over eight seeds, and a
// third on top.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "bench/cases/score_cases.hpp"

namespace flashcore::bench {

// One of these kinds of data: what it makes of inputs from N(0, 1).
struct Fp8Data {
  std::string name;
  std::function<void(HostProblem&)> bend;
};
std::vector<Fp8Data> fp8_data();

// Inputs of such a kind in f32, with an O of f32 and an LSE. `q` and `k`: [1, H, S, D].
HostProblem draw(const Fp8Data& data, std::initializer_list<int64_t> q,
                 std::initializer_list<int64_t> k, uint64_t seed);

// Element d of row r of all heads becomes change(r, d, what it was).
void change_rows(HostTensor& tensor, const std::function<double(int64_t, int64_t, double)>& change);

// "fp8/outliers/64x1000x128": one of score_cases().
std::vector<ScoreCase> fp8_cases();

}  // namespace flashcore::bench

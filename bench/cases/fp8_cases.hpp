// Data on which probabilities that are rounded to e4m3 are worst, each with gates of its own: the
// rows of the table in docs/semantics.md. They were fixed before a kernel was timed, from the
// rounding alone, P = 2^5 for the largest score of a row: the largest errors over eight seeds, and a
// third on top.
#pragma once

#include <vector>

#include "bench/cases/score_cases.hpp"

namespace flashcore::bench {

// "fp8/outliers/64x1000x128": one of score_cases().
std::vector<ScoreCase> fp8_cases();

}  // namespace flashcore::bench

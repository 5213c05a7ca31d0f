// The problems with hard scores (bench/cases/score_cases.hpp).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/cases/score_cases.hpp"
#include "bench/verify/findings.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Returns the cases whose names begin with one of `prefixes`; each prefix must match one.
Result<std::vector<ScoreCase>> score_cases_of(const std::vector<std::string>& prefixes);

// Judges the kernels on all of them, in parallel on the CPU's threads. Returns the results as evidence:
// {"problems", "kernels": [{"kernel", "passed", "failed", "refused", ...errors}],
//   "failures": [{"name", "kernel", "failure", "problem", "repeat"}]}.
Result<nlohmann::ordered_json> judge_scores(const std::vector<ScoreCase>& cases,
                                            const Tested& tested, Findings& found);

}  // namespace flashcore::bench

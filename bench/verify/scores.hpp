// The problems with hard scores (bench/cases/score_cases.hpp).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/cases/score_cases.hpp"
#include "bench/verify/findings.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Those whose names begin with one of `prefixes`, of which each must begin one.
Result<std::vector<ScoreCase>> score_cases_of(const std::vector<std::string>& prefixes);

// Judges the kernels on all of them, side by side on the CPU's threads. What was found, as evidence:
// {"problems", "kernels": [{"kernel", "passed", "failed", "refused", ...errors}],
//  "failures": [{"name", "kernel", "failure", "problem", "repeat"}]}.
Result<nlohmann::ordered_json> judge_scores(const std::vector<ScoreCase>& cases,
                                            const Tested& tested, Findings& found);

}  // namespace flashcore::bench

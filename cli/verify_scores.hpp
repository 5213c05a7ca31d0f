// The problems with hard scores (bench/cases/score_cases.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

// Judges every kernel under test on the problems whose names begin with one of `prefixes`, prints
// what came of it and returns it:
// {"problems", "kernels": [{"kernel", "passed", "failed", "refused", ...errors}],
//  "failures": [{"name", "kernel", "failure", "problem", "repeat"}]}.
// The problems are shared out among the CPU's threads.
Result<nlohmann::ordered_json> verify_scores(const std::vector<std::string>& prefixes,
                                             const PlanOptions& plan, Session& session);

}  // namespace flashcore::cli

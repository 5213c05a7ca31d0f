// Random problems over the whole feature space.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "bench/cases/random_problem.hpp"
#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct VerifyRandom {
  int64_t problems = 0;
  uint64_t first_seed = 0;
  bench::RandomSpace space;
};

// Judges every kernel under test on every problem, prints what came of it and returns it:
// {"problems", "first_seed", "largest_seqlen", "largest_head_dim",
//  "kernels": [{"kernel", "passed", "failed", "refused"}],
//  "failures": [{"seed", "kernel", "failure", "problem", "repeat"}]}.
// With PlanOptions::batch_invariant each problem is one entry in several batches instead, and the
// chosen kernel must give it the same bits in all of them.
// On a GPU the problems are shared out among the CPU's threads, which compute the references.
Result<nlohmann::ordered_json> verify_random(const VerifyRandom& asked, const PlanOptions& plan,
                                             Session& session);

// Runs problems without judging them, for a sanitizer to watch, until `problems` have run or many
// more were refused; a mark on stdout before and after. Exit-worthy errors are returned.
Status run_unjudged(const VerifyRandom& asked, const PlanOptions& plan);

}  // namespace flashcore::cli

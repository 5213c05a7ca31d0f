// Random problems over the whole feature space.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "bench/cases/random_problem.hpp"
#include "bench/verify/findings.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct RandomTrials {
  int64_t problems = 0;
  uint64_t first_seed = 0;
  RandomSpace space;
  bool backward = false;  // judges the backward pass
  // If the requested kernel refuses a problem, draws from narrower spaces (narrowed), until the
  // kernel computes it.
  bool narrow = false;
};

// Judges the kernels on every problem. With PlanOptions::batch_invariant each problem is one entry
// in several batches instead, and the chosen kernel must give it the same bits in all of them. For
// a GPU the CPU's threads share the problems and compute the references.
Status judge_random(const RandomTrials& asked, const Tested& tested, Findings& found);

// {"problems", "first_seed", "largest_seqlen", "largest_head_dim", "narrow",
//  "kernels": [{"kernel", "passed", "failed", "refused", ...errors}],
//  "failures": [{"name", "kernel", "failure", "problem", "repeat", "seed"}]}
nlohmann::ordered_json random_json(const RandomTrials& asked, const Findings& found);

// Runs problems between marks (run_marked) until each kernel has run `problems` of them, or many
// more were refused.
Status run_random_marked(const RandomTrials& asked, const Tested& tested);

}  // namespace flashcore::bench

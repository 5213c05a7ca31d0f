// The ladder: a list of cases and a list of kernels, in climbing order, for the gates of bench/verify
// and the times of bench/run; and what each kernel was predicted to give beside what it gave.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cases/cases.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Rung {
  std::string name;          // the kernel's
  std::string adds;          // to the rung before
  std::string prediction;    // of what that gives, written before it was measured
  DType input = DType::f16;  // or f8e4m3, with scales
  int min_compute_capability = 0;
};

struct LadderOptions {
  std::vector<Case> gated = gate_shapes();  // full and causal, in the types that the rungs read
  std::vector<Case> timed = *suite_cases("five");
  bool times = true;                       // otherwise gates alone
  std::vector<int64_t> seeds = {0, 1, 2};  // of the gates' inputs
  int64_t tails = 60;                      // random problems per type of input
  std::string peers = "auto";              // as in RunOptions
  std::string out;                         // evidence, written after every step; empty: nowhere
  bool all_rungs = true;                   // the evidence is of the whole ladder
  // What this program runs under the sanitizers meanwhile: run_rungs_marked. Empty: nothing.
  std::vector<std::string> sanitized;
};

// Gates, then times of the rungs that passed them; evidence of the kind "ladder". What there is when
// the device fails is kept in it, with a note. `step` is told what begins.
Result<nlohmann::ordered_json> climb_ladder(const std::vector<Rung>& rungs, const PlanOptions& plan,
                                            const LadderOptions& options,
                                            const std::function<void(const std::string&)>& step);

// Every rung on small problems between marks (run_marked); the first error.
Status run_rungs_marked(const std::vector<Rung>& rungs, const PlanOptions& plan);

}  // namespace flashcore::bench

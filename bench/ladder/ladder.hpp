// The ladder: a list of cases and a list of kernels, in climbing order, for the gates of
// bench/verify and the times of bench/run; and each kernel's prediction next to its result.
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
  std::string name;          // kernel name
  std::string adds;          // change from the rung before
  std::string prediction;    // predicted gain, written before it was measured
  DType input = DType::f16;  // or f8e4m3, with scales
  int min_compute_capability = 0;
};

struct LadderOptions {
  std::vector<Case> gated = gate_shapes();  // full and causal, in the rungs' types
  std::vector<Case> timed = *suite_cases("five");
  bool times = true;                       // false: gates only
  std::vector<int64_t> seeds = {0, 1, 2};  // seeds of the gates' inputs
  int64_t tails = 60;                      // random problems per input type
  std::string peers = "auto";              // same as RunOptions::peers
  std::string out;                         // evidence, updated after every step; empty: none
  bool all_rungs = true;                   // the evidence covers the whole ladder
  // The rungs that this program runs under sanitizers meanwhile (run_rungs_marked). May be empty.
  std::vector<std::string> sanitized;
};

// Runs gates, then times the rungs that passed; returns evidence of the kind "ladder". If the
// device fails, the evidence so far is kept, with a note. `step` is called as each step begins.
Result<nlohmann::ordered_json> climb_ladder(const std::vector<Rung>& rungs, const PlanOptions& plan,
                                            const LadderOptions& options,
                                            const std::function<void(const std::string&)>& step);

// Runs every rung on small problems between marks (run_marked); returns the first error.
Status run_rungs_marked(const std::vector<Rung>& rungs, const PlanOptions& plan);

}  // namespace flashcore::bench

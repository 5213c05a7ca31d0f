// Runs cases in a child that may hang or crash: a point that ends the child costs only its own row.
// The next child resumes from the evidence.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/run/run.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Watched {
  nlohmann::ordered_json evidence;
  bool interrupted = false;  // a signal ended it; the results are only in the file
};

// Starts this program with its own arguments and --worker, and watches it.
Result<Watched> watch_cases(const RunOptions& options, const std::vector<Subject>& subjects,
                            const PlanOptions& plan);

// The child's side, in a process that was started with --worker FILE.
Status work_for_watcher(const RunOptions& options, const std::vector<Subject>& subjects,
                        PlanOptions plan);

}  // namespace flashcore::bench

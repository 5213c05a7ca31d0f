// A run of cases in a process that may hang or fall: the work is done by a child, and a point that
// ends it costs only its own row. The child goes on from the evidence it left.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/run/run.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Watched {
  nlohmann::ordered_json evidence;
  bool interrupted = false;  // by a signal; then what was measured is in the file alone
};

// Starts this program with its own words and --worker, and watches it.
Result<Watched> watch_cases(const RunOptions& options, const std::vector<Subject>& subjects,
                            const PlanOptions& plan);

// The child's part, in a process that was started with --worker FILE.
Status work_for_watcher(const RunOptions& options, const std::vector<Subject>& subjects,
                        PlanOptions plan);

}  // namespace flashcore::bench

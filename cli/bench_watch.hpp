// `flashcore bench` in a process that may hang or fall: the work is done by a child, and a point
// that ends it costs only its own row. The child goes on from the evidence it left.
#pragma once

#include <vector>

#include "bench/run/run.hpp"
#include "cli/exit_code.hpp"
#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

// Runs, watches, and prints what came out.
Result<ExitCode> watch_bench(const bench::RunOptions& options,
                             std::vector<bench::Subject>& subjects, const PlanOptions& plan,
                             Session& session);

// The child's part, in a process that was started with --worker FILE.
Result<ExitCode> work_for_watcher(const bench::RunOptions& options,
                                  std::vector<bench::Subject>& subjects, PlanOptions plan);

}  // namespace flashcore::cli

// A rung as a kernel that can be run: its inputs, its problems.
#pragma once

#include <vector>

#include "bench/cases/cases.hpp"
#include "cli/exit_code.hpp"
#include "cuda/ladder/rung.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

DType input_of(const cuda::ladder::Rung& rung);

// The problem of a case, with the rung's inputs.
Problem rung_problem(const cuda::ladder::Rung& rung, const bench::Case& shape);

// Every rung on small problems, unjudged, between marks: what the sanitizers watch.
Result<ExitCode> run_rungs_once(const std::vector<cuda::ladder::Rung>& rungs, Device device);

}  // namespace flashcore::cli

// Runs a GPU candidate under NVIDIA's tools: one launch, by our launcher.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "evolve/evaluate/compile.hpp"

namespace flashcore::evolve {

// ncu's counters on the first shape to win on, and a diagnosis (flashcore profile). Failures are
// reported in place: {"missing": "..."}.
nlohmann::ordered_json profiled(const Task& task, const Program& program, const Compiled& compiled,
                                const Tools& tools);

// Runs memcheck, racecheck, initcheck and synccheck on a small shape with partial tiles. A missing
// tool is an error.
Result<Finding> sanitized(const Task& task, const Program& program, const Compiled& compiled,
                          const Tools& tools);

}  // namespace flashcore::evolve

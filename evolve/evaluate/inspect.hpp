// A GPU candidate under NVIDIA's tools: one launch, by our program that launches candidates.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "evolve/evaluate/compile.hpp"

namespace flashcore::evolve {

// What ncu counts on the first shape to win on, and what follows from it (flashcore profile). What
// could not be counted is said in its place: {"missing": "..."}.
nlohmann::ordered_json profiled(const Task& task, const Program& program, const Compiled& compiled,
                                const Tools& tools);

// Under memcheck, racecheck, initcheck and synccheck, on a small shape with tails. A tool that is not
// here is a status.
Result<Finding> sanitized(const Task& task, const Program& program, const Compiled& compiled,
                          const Tools& tools);

}  // namespace flashcore::evolve

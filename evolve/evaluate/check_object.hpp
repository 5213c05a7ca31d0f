// Checks of a compiled candidate before it runs.
#pragma once

#include <cstdint>
#include <string>

#include "evolve/evaluate/compile.hpp"

namespace flashcore::evolve {

// Spills of a GPU candidate, from its compiler's report: stores and loads of the worst function.
int64_t spill_bytes(const Compiled& compiled);

// Checks budgets of sizes. CPU: only functions of mathematics and memory may be imported. GPU:
// spills, and launch lines.
Result<Finding> check_object(const Task& task, const Program& program, const Compiled& compiled);

// The description of a GPU candidate for its process (gpu_commands.hpp).
std::string load_text(const std::string& object, const Program& program);

}  // namespace flashcore::evolve

// What is known of a compiled candidate before it runs.
#pragma once

#include <cstdint>
#include <string>

#include "evolve/evaluate/compile.hpp"

namespace flashcore::evolve {

// Of a GPU candidate, by its compiler's report: stores and loads of the worst function.
int64_t spill_bytes(const Compiled& compiled);

// Budgets of sizes. CPU: what it may take from libraries, functions of mathematics and memory. GPU:
// what it spills, and its launch lines.
Result<Finding> check_object(const Task& task, const Program& program, const Compiled& compiled);

// What the process of a GPU candidate is told of it (gpu_commands.hpp).
std::string load_text(const std::string& object, const Program& program);

}  // namespace flashcore::evolve

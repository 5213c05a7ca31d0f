// A candidate's text becomes a shared object that exports its entry point and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/process/temporary_folder.hpp"
#include "evolve/evaluate/outcome.hpp"
#include "evolve/task/program.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

inline constexpr const char* kObject = "candidate.so";

struct Compiled {
  bench::TemporaryFolder root;  // holds the object, and nothing else
  int64_t object_bytes = 0;
  std::vector<std::string> report;  // what the compiler said it optimised
  double seconds = 0;
};

// `runner` starts the compiler with limits. Null, and why in `finding`, where the candidate is to
// blame: it does not compile, or takes too long.
Result<std::unique_ptr<Compiled>> compile(const Task& task, const Program& program,
                                          const std::string& runner, Finding& finding);

// Budgets of sizes, and what it may take from libraries: functions of mathematics and memory.
Result<Finding> check_object(const Task& task, const Compiled& compiled);

}  // namespace flashcore::evolve

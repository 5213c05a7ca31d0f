// The run behind `flashcore bench`: gates, then kernels and peers in turns, then evidence, case by
// case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases.hpp"
#include "cli/exit_code.hpp"
#include "cli/plan_choice.hpp"
#include "cli/problem_options.hpp"
#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct BenchOptions {
  ProblemOptions problem;
  PlanChoice choice;
  std::string suites = "five";
  std::string cases;  // a file
  std::string also;   // kernels that are never chosen by themselves
  bool all_kernels = false;
  std::string peers = "none";  // none, auto, or the helper's path
  std::string backends = "auto";
  std::string protocols = "all";
  double seconds = 0;  // no case begins after these; 0: no limit
  std::string out;
  bool resume = false;
  bool verbose = false;
};

// One case of a suite or a file, or the problem that was given.
struct BenchSubject {
  std::string suite;
  bench::Case one;                     // of a suite or a file
  std::optional<ProblemInputs> given;  // else

  std::string name() const;
  Problem problem() const;
};

Result<ExitCode> run_bench(const BenchOptions& options, std::vector<BenchSubject> subjects,
                           const PlanOptions& plan, Session& session);

}  // namespace flashcore::cli

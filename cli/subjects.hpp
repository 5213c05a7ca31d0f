// Chooses the problems that a command measures: suites, cases of a file, or a given one.
#pragma once

#include <string>
#include <vector>

#include "bench/run/run.hpp"
#include "cli/gradient_options.hpp"
#include "cli/options.hpp"
#include "cli/problem_options.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct SubjectOptions {
  ProblemOptions problem;
  GradientOptions gradients;
  std::string suites = "five";
  std::string cases;  // a file
  bool quick = false;

  // Declares the options of cases and suites; `problem` and `gradients` declare a given problem's.
  void declare(OptionSet& set);
};

// With gradients if --backward is set or the case is a backward pass.
Result<std::vector<bench::Subject>> subjects_of(const SubjectOptions& options);

}  // namespace flashcore::cli

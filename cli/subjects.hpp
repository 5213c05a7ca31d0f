// Which problems a command measures: suites, cases of a file, or one that is given.
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

  // The options of cases and suites; those of a given problem are `problem` and `gradients`.
  void declare(OptionSet& set);
};

// With gradients where --backward or the case asks for them.
Result<std::vector<bench::Subject>> subjects_of(const SubjectOptions& options);

}  // namespace flashcore::cli

// The options of a backward pass, for commands that compute one: whether, from which gradients, and
// which ones.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/device/plan_choice.hpp"
#include "bench/io/problem_inputs.hpp"
#include "cli/options.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

class GradientOptions {
 public:
  void declare(OptionSet& options, bench::PlanChoice& choice);

  bool backward() const { return backward_; }
  Status check(const bench::PlanChoice& choice) const;  // refuses the others without --backward
  Status check_for_suites() const;  // refuses those that need a problem of its own

  // "d_o" and "d_lse", and what the options name for them; empty without --backward.
  const std::map<std::string, std::string>& sources() const;

  // Of a problem with these inputs, in memory of the order of `layout`. `d_lse`: one is drawn where
  // there is none in a file.
  Result<Gradients> describe(const bench::ProblemInputs& inputs, const std::string& layout,
                             bool d_lse) const;

  // The gradients that are asked for, which `gradients` has.
  Result<std::vector<std::string>> names(const Gradients& gradients) const;

 private:
  // The first option given that is of one problem; empty when none is.
  std::string given_of_a_problem() const;

  bool backward_ = false;
  std::map<std::string, std::string> sources_ = {{"d_o", ""}, {"d_lse", ""}};
  std::string names_, dtype_;
};

}  // namespace flashcore::cli

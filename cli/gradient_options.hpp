// The options of a backward pass, for commands that compute one: whether to compute it, the
// incoming gradients, and the requested ones.
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
  Status check(const bench::PlanChoice& choice) const;  // refuses options without --backward
  Status check_for_suites() const;                      // refuses options that need a given problem

  // Maps "d_o" and "d_lse" to the options' values; empty without --backward.
  const std::map<std::string, std::string>& sources() const;

  // Describes the gradients of a problem with these inputs, in the memory order of `layout`.
  // `d_lse`: one is drawn if no file has it.
  Result<Gradients> describe(const bench::ProblemInputs& inputs, const std::string& layout,
                             bool d_lse) const;

  // The requested gradients, which must be in `gradients`.
  Result<std::vector<std::string>> names(const Gradients& gradients) const;

 private:
  // The first given option that belongs to a given problem; empty if there is none.
  std::string given_of_a_problem() const;

  bool backward_ = false;
  std::map<std::string, std::string> sources_ = {{"d_o", ""}, {"d_lse", ""}};
  std::string names_, dtype_;
};

}  // namespace flashcore::cli

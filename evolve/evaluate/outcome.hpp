// How an attempt ended.
#pragma once

#include <string>
#include <string_view>

namespace flashcore::evolve {

// All but the first are invalid; `proposal` and `duplicate` are of attempts that never came to the
// evaluator.
enum class Outcome {
  valid,
  timeout,
  compile,
  resources,
  runtime,
  correctness,
  constraints,
  duplicate,
  proposal,
};

std::string_view to_string(Outcome outcome);

// Of one stage: valid, or what went wrong in one sentence.
struct Finding {
  Outcome outcome = Outcome::valid;
  std::string sentence = {};
  bool ok() const { return outcome == Outcome::valid; }
};

}  // namespace flashcore::evolve

// The outcome of an attempt.
#pragma once

#include <string>
#include <string_view>

namespace flashcore::evolve {

// All but the first are invalid; attempts with `proposal` and `duplicate` never
// reached the evaluator.
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

// The result of one stage: valid, or what went wrong in one sentence.
struct Finding {
  Outcome outcome = Outcome::valid;
  std::string sentence = {};
  bool ok() const { return outcome == Outcome::valid; }
};

}  // namespace flashcore::evolve

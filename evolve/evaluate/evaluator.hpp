// The interface of evaluators of candidates; StageEvaluator implements it for CPU and GPU.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "evolve/evaluate/outcome.hpp"
#include "evolve/task/program.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::evolve {

struct Evaluation {
  Outcome outcome = Outcome::valid;
  std::string stage;   // the last stage that began
  std::string reason;  // one sentence; empty for a valid candidate
  double score = 0;    // speed relative to the seed; 0 if invalid
  double noise = 0;    // relative noise of the score
  // {"compiler", "gates", "times", "seeds", ...}: the results of the stages, in order.
  nlohmann::ordered_json evidence = nlohmann::ordered_json::object();
};

// The fastest program so far: candidates are timed in turns with it.
struct Incumbent {
  Program program;
  double score;
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Without an incumbent the program is the seed, with a score of 1. An error is this machine's,
  // not the candidate's.
  virtual Result<Evaluation> evaluate(const Program& program, const Incumbent* incumbent) = 0;
};

}  // namespace flashcore::evolve

// Says what a candidate is worth. One for CPU candidates; one for GPU candidates would be another.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "evolve/evaluate/outcome.hpp"
#include "evolve/task/program.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::evolve {

struct Evaluation {
  Outcome outcome = Outcome::valid;
  std::string stage;   // the last one that began
  std::string reason;  // one sentence; empty for a valid one
  double score = 0;    // times as fast as the seed; 0 for an invalid one
  double noise = 0;    // of the score, relative
  // {"compiler", "gates", "times", "seeds", ...}: what the stages found, in their order.
  nlohmann::ordered_json evidence = nlohmann::ordered_json::object();
};

// The fastest so far: what a candidate is timed in turns with.
struct Incumbent {
  Program program;
  double score;
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Without an incumbent the program is the seed, whose score is 1. A status is of this machine, not
  // of the candidate.
  virtual Result<Evaluation> evaluate(const Program& program, const Incumbent* incumbent) = 0;
};

}  // namespace flashcore::evolve

// A compiled and loaded candidate, wherever it runs.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "evolve/evaluate/outcome.hpp"
#include "evolve/runner/commands.hpp"

namespace flashcore::evolve {

struct Ran {
  Finding finding = {};
  // The time of all calls together: CPU time for CPU candidates, time between events
  // for GPU candidates.
  double seconds = 0;
  double wall_seconds =
      0;  // by this process's clock, where `seconds` is checked against that; otherwise 0
};

class Candidate {
 public:
  virtual ~Candidate() = default;

  // Runs the calls of a command; returns when the outputs are complete. `nonce` must be a new one
  // for every command.
  virtual Ran run(const RunCommand& command, double limit_seconds) = 0;

  // Adds how it runs, such as which isolation is in force.
  virtual void describe(nlohmann::ordered_json& evidence) const = 0;
};

}  // namespace flashcore::evolve

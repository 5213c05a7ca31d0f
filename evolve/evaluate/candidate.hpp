// A candidate that was compiled and loaded, wherever it runs.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "evolve/evaluate/outcome.hpp"
#include "evolve/runner/commands.hpp"

namespace flashcore::evolve {

struct Ran {
  Finding finding = {};
  // What counts as the time of all calls together: of the processor for CPU candidates, between events
  // for GPU ones.
  double seconds = 0;
  double wall_seconds =
      0;  // of the clock of this process, where it is to be held to that; otherwise 0
};

class Candidate {
 public:
  virtual ~Candidate() = default;

  // Runs the calls of a command, whose outputs are there afterwards. `nonce` differs from that of every
  // earlier command.
  virtual Ran run(const RunCommand& command, double limit_seconds) = 0;

  // How it runs: what of the isolation is in force, and the like.
  virtual void describe(nlohmann::ordered_json& evidence) const = 0;
};

}  // namespace flashcore::evolve

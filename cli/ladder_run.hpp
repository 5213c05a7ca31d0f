// The run behind `flashcore ladder`: gates, sanitizers, ceilings, times, peers, evidence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/session.hpp"
#include "cuda/ladder/rung.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct LadderOptions {
  std::string rungs = "all";
  std::string device = "cuda:0";
  std::string out = "ladder.json";  // or "none"
  std::string peers = "auto";
  std::string seeds = "0,1,2";
  int64_t tails = 60;
  bool list = false;
  bool quick = false;
  bool no_sanitizers = false;
  bool only_run = false;

  bool writes() const { return out != "none"; }
};

// Gates, then times, in that order; what there is when something fails is kept in the evidence.
Result<ExitCode> run_ladder(const LadderOptions& options, std::vector<cuda::ladder::Rung> rungs,
                            std::vector<int64_t> seeds, Device device, Session& session);

}  // namespace flashcore::cli

// The gates of the ladder: every rung on the gate table, on random tails, and twice the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct LadderRung {
  std::string name;
  DType input = DType::f16;
};

// The worst of the seeds of one shape, full or causal.
struct GateRow {
  std::string shape;
  bool causal = false;
  int64_t passed = 0;
  int64_t failed = 0;
  double max_scaled_error = 0, relative_error = 0, lse_error = 0;
};

struct RungGate {
  std::vector<GateRow> rows;
  int64_t tails_passed = 0, tails_failed = 0, tails_refused = 0;
  int64_t repeats_equal = 0, repeats_different = 0;
  std::string failure;  // the first, as a sentence

  bool passed() const { return failure.empty() && !rows.empty(); }
  double max_scaled_error() const;
  double relative_error() const;
};

// A rung's part of the evidence.
nlohmann::ordered_json gate_evidence(const RungGate& gate);

struct GateOptions {
  std::vector<int64_t> seeds = {0, 1, 2};
  int64_t tails = 60;       // random problems per type of input
  bool small_only = false;  // of the gate table, only the small shape
};

using RungGates = std::map<std::string, RungGate>;

// `step` is told what is being done. References are computed once a problem and shared.
Result<RungGates> gate_rungs(const std::vector<LadderRung>& rungs, Device device,
                             const GateOptions& options,
                             const std::function<void(const std::string&)>& step);

}  // namespace flashcore::cli

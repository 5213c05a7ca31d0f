// The table of gates: every kernel on fixed shapes, with fixed seeds.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/verify/findings.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// One kernel on one case; the tally covers all seeds.
struct GateRow {
  Case one;
  std::string kernel;
  Tally tally;
};

// Judges the kernels on every case, with the inputs of every seed. Rows are in the order of the
// cases. `backward`: judges the backward pass.
Result<std::vector<GateRow>> judge_table(const std::vector<Case>& cases,
                                         const std::vector<int64_t>& seeds, const Tested& tested,
                                         bool backward = false);

// [{"shape", "dtype", "causal", "kernel", "seeds", "passed", "refusal", "failure", ...errors}]
nlohmann::ordered_json gate_rows_json(const std::vector<GateRow>& rows,
                                      const std::vector<int64_t>& seeds);

}  // namespace flashcore::bench

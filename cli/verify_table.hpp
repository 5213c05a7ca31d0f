// The table of gates: fixed shapes, types and seeds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct VerifyTable {
  std::string shapes;  // "small,mission", or "none"
  std::string dtypes;
  std::vector<int64_t> seeds;
};

// Judges every kernel under test on every row, prints the rows and returns them:
// [{"shape", "dtype", "causal", "kernel", "seeds", "passed", "refusal", "failure", ...errors}].
Result<nlohmann::ordered_json> verify_table(const VerifyTable& table, const PlanOptions& plan,
                                            Session& session);

}  // namespace flashcore::cli

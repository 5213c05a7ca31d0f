// What `flashcore verify` found, as evidence.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Verified {
  bool backward = false;                                           // of the backward pass
  nlohmann::ordered_json table = nlohmann::ordered_json::array();  // gate_rows_json
  nlohmann::ordered_json scores, random;  // judge_scores, random_json; null: not asked for
  nlohmann::ordered_json sanitizers = nlohmann::ordered_json::object();  // by kernel
};

// The kernels that computed a problem of the table, of the hard scores or of the random ones.
std::set<std::string> kernels_that_ran(const Verified& found);

// The whole of it, with the fingerprints of those kernels; fits the schema.
Result<nlohmann::ordered_json> verify_evidence(const Verified& found, const PlanOptions& plan);

}  // namespace flashcore::bench

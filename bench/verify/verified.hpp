// The results of `flashcore verify`, as evidence.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/verify/findings.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Verified {
  bool backward = false;                                           // judges the backward pass
  nlohmann::ordered_json table = nlohmann::ordered_json::array();  // gate_rows_json
  nlohmann::ordered_json scores, random;  // judge_scores, random_json; null: not requested
  nlohmann::ordered_json sanitizers = nlohmann::ordered_json::object();  // kernel to results
  // The kernels that computed a problem, and the device functions that they launched.
  std::map<std::string, std::set<std::string>> ran;

  void add(const std::string& kernel, const Tally& tally);
  void add(const Findings& found);
};

// All results, with the fingerprints of the kernels that ran; fits the schema.
Result<nlohmann::ordered_json> verify_evidence(const Verified& found, const PlanOptions& plan);

}  // namespace flashcore::bench

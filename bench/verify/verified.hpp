// What `flashcore verify` found, as evidence.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/verify/findings.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Verified {
  bool backward = false;                                           // of the backward pass
  nlohmann::ordered_json table = nlohmann::ordered_json::array();  // gate_rows_json
  nlohmann::ordered_json scores, random;  // judge_scores, random_json; null: not asked for
  nlohmann::ordered_json sanitizers = nlohmann::ordered_json::object();  // by kernel
  // The kernels that computed a problem, and the device functions that they launched.
  std::map<std::string, std::set<std::string>> ran;

  void add(const std::string& kernel, const Tally& tally);
  void add(const Findings& found);
};

// The whole of it, with what the kernels that ran are known by; fits the schema.
Result<nlohmann::ordered_json> verify_evidence(const Verified& found, const PlanOptions& plan);

}  // namespace flashcore::bench

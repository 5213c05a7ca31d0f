// The ladder's evidence: results of gates and cases, rung by rung.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/verify/gate_table.hpp"

namespace flashcore::bench {

// A rung's gates: its rows of the table, and its results on the random problems.
nlohmann::ordered_json rung_gate(const std::string& rung, const std::vector<GateRow>& table,
                                 const Findings& tails);

// The record of that rung in the evidence.
nlohmann::ordered_json& rung_record(nlohmann::ordered_json& evidence, const std::string& name);

// Adds a case that bench/run measured: the times and launches of its rungs, or why there are none;
// and its peers.
void add_case(nlohmann::ordered_json& evidence, const nlohmann::ordered_json& one);

// Speed relative to the timed rung before, and to the unfused one; above 1 is faster.
void add_ratios(nlohmann::ordered_json& evidence);

// Returns whether every rung passed its gates, its sanitizers and its timing.
bool ladder_passed(const nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench

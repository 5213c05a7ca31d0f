// Evidence as tables and lines for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/text/table.hpp"
#include "bench/verify/gate_table.hpp"

namespace flashcore::bench {

// The table of `flashcore bench`: one row per case and implementation, with its times by the protocol.
Table run_table(const nlohmann::ordered_json& evidence, const std::string& protocol);
std::vector<std::string> run_failures(const nlohmann::ordered_json& evidence);
std::vector<std::string> ceiling_lines(const nlohmann::ordered_json& ceilings);  // one per protocol

// The tables of `flashcore verify`: the gates, then the results of judge_scores and random_json.
Table gate_table(const std::vector<GateRow>& rows);
Table tally_table(const std::string& heading, const nlohmann::ordered_json& part);
std::vector<std::string> verify_failures(const nlohmann::ordered_json& part);

// The tables of `flashcore ladder`: gates with sanitizers, and times.
Table ladder_gates(const nlohmann::ordered_json& evidence);
Table ladder_times(const nlohmann::ordered_json& evidence);
std::vector<std::string> ladder_failures(const nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench

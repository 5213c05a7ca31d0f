// Cases and points of `flashcore bench` as evidence, and resuming from evidence.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/run/point.hpp"
#include "bench/run/run.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// The description of a case; its rows are added later.
nlohmann::ordered_json case_json(const Subject& subject);

// The rows of a case, with rates, fractions of the `ceilings`, and ratios to the fastest peer.
nlohmann::ordered_json rows_json(const std::vector<Point>& points,
                                 const nlohmann::ordered_json& one, const Subject& subject,
                                 const nlohmann::ordered_json& ceilings);

// Finds the subject's case among `earlier` ones, if this build still has the code that it ran and
// it has peers if they are wanted; otherwise null.
const nlohmann::ordered_json* finished_case(const nlohmann::ordered_json& earlier,
                                            const Subject& subject, bool wants_peers);

// Returns whether one of our rows failed in a case.
bool has_failure(const nlohmann::ordered_json& one);

// One case: "d128/s512: forward_sm80_throughput 350.1 us (...), cudnn ...".
std::string case_line(const nlohmann::ordered_json& one, const std::string& protocol);

// A tuned case: "d128/s512: NAME:CONFIG 350.1 us, 12.0% ahead of NAME".
std::string tuned_line(const nlohmann::ordered_json& one);

}  // namespace flashcore::bench

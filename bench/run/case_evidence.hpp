// Cases and points of `flashcore bench` as evidence, and evidence that is gone on with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/run/point.hpp"
#include "bench/run/run.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// What names a case; its rows are added later.
nlohmann::ordered_json case_json(const Subject& subject);

// The rows of a case, with rates, shares of what `ceilings` allow, and ratios to the fastest peer.
nlohmann::ordered_json rows_json(const std::vector<Point>& points,
                                 const nlohmann::ordered_json& one, const Subject& subject,
                                 const nlohmann::ordered_json& ceilings);

// The subject's case among `earlier` ones, if this build still has the code that ran in it and it has
// peers where they are wanted; null when there is none.
const nlohmann::ordered_json* finished_case(const nlohmann::ordered_json& earlier,
                                            const Subject& subject, bool wants_peers);

// Whether one of ours failed in a case.
bool has_failure(const nlohmann::ordered_json& one);

// One case: "d128/s512: forward_sm80_throughput 350.1 us (...), cudnn ...".
std::string case_line(const nlohmann::ordered_json& one, const std::string& protocol);

// The same of a case that was tuned: "d128/s512: NAME:CONFIG 350.1 us, 12.0% ahead of NAME".
std::string tuned_line(const nlohmann::ordered_json& one);

}  // namespace flashcore::bench

// What follows from the times of a case: files leave it out, and readers add it.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace flashcore::bench {

// Adds rates, fractions of the `ceilings`, and ratios to the fastest peer to the rows of a case.
void add_rates(nlohmann::ordered_json& rows, const nlohmann::ordered_json& one,
               const nlohmann::ordered_json& ceilings);

// Adds or removes the rates of all cases of a file.
void add_rates(nlohmann::ordered_json& evidence);
nlohmann::ordered_json without_rates(nlohmann::ordered_json evidence);

}  // namespace flashcore::bench

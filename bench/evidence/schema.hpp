// Holds JSON to the few words of JSON Schema that docs/evidence/schema.json uses.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// An object whose `properties` are listed has no others, unless `additionalProperties` says what they
// are. `definitions` are what "$ref" names. The error begins with the place: "cases[3].rows[0].gate:
// ...".
Status check_schema(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
                    const nlohmann::ordered_json& definitions);

}  // namespace flashcore::bench

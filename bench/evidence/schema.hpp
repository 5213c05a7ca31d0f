// Checks JSON against the subset of JSON Schema that docs/evidence/schema.json uses.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// An object with `properties` has no other members unless `additionalProperties`
// describes them. `definitions` holds the targets of "$ref". An error begins with the
// location: "cases[3].rows[0].gate: ...".
Status check_schema(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
                    const nlohmann::ordered_json& definitions);

// Renames members of the value and of all objects in it. `names`: today's by former ones.
void rename_members(nlohmann::ordered_json& value, const nlohmann::ordered_json& names);

}  // namespace flashcore::bench

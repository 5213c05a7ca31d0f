// The compact form of evidence files, which tools/reporting/compact.py reads, too.
//
// Objects with the same members name them once, in `forms`: ["#0", "implementation", ["source",
// "peer"], "gate/passed"]. Such an object is then a list, ["#0", "flash", true]: the form, and the
// values in its order. A member with a value in the form has that
// value in every such object; "gate/passed" is the member `passed` of the member `gate`. Strings
// that are repeated stand in `texts`, and "@3" elsewhere.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

nlohmann::ordered_json compact(const nlohmann::ordered_json& evidence);

// What a document in this form says; one without forms and texts is as it was. Refuses a document
// that is far larger than its file.
Result<nlohmann::ordered_json> whole(nlohmann::ordered_json document);

}  // namespace flashcore::bench

// What every evidence file says about where and with what its numbers were made.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace flashcore::bench {

// Which source this program was built of, and when.
struct BuiltFrom {
  std::string commit;     // empty: it was built without git
  bool modified = false;  // files differed from the commit
  std::string day;        // "2026-11-28"
};
BuiltFrom built_from();

inline constexpr int kEvidenceVersion = 1;  // of the schema; readers refuse others

// {"schema": "flashcore-evidence", "version", "kind", "created", "library": {version, commit, ...},
//  "host": {processor, threads}}; the caller adds the rest.
nlohmann::ordered_json new_evidence(const std::string& kind);

// Numbers that are not whole to six digits, which is more than any measurement holds.
nlohmann::ordered_json rounded(nlohmann::ordered_json value);

// The text of an evidence file: rounded, a row a line, so that files are small and their changes
// readable. tools/reporting/evidence.py writes the same.
std::string evidence_text(const nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench

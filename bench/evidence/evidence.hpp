// The part of every evidence file that says where and with what its numbers were measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace flashcore::bench {

// The source that this program was built from, and when.
struct BuiltFrom {
  std::string commit;     // empty: built without git
  bool modified = false;  // files differed from the commit
  std::string day;        // "2026-11-28"
};
BuiltFrom built_from();

inline constexpr int kEvidenceVersion = 1;  // schema version; readers refuse others

// {"schema": "flashcore-evidence", "version", "kind", "created", "library": {version, commit, ...},
//  "host": {processor, threads}}; the caller adds the rest.
nlohmann::ordered_json new_evidence(const std::string& kind);

// Rounds numbers that are not integers to six digits, more than any measurement holds.
nlohmann::ordered_json rounded(nlohmann::ordered_json value);

// The text of an evidence file: rounded, compact, without rates, one row per line.
// tools/reporting/evidence.py writes the same.
std::string evidence_text(const nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench

// JSON files from people and programs: read with limits, checked by a schema, never trusted.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cases/cases.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Reads a regular file of at most 64 MiB and 32 levels.
Result<nlohmann::ordered_json> read_json(const std::string& path);

// Checks against docs/evidence/schema.json, in the version that this program writes. What is read is
// whole again, with its rates.
Result<nlohmann::ordered_json> read_evidence(const std::string& path);
Status check_evidence(const nlohmann::ordered_json& evidence);

// A case of a file; `suite` names its table, "file" by default.
struct FileCase {
  std::string suite;
  Case one;
  bool backward = false;  // the case is its backward pass
};

// {"schema": "flashcore-cases", "version": 1, "cases": [{"name", "dtype", "batch", "heads_q",
//  "heads_kv", "seqlen_q", "seqlen_kv", "head_dim", "causal", "suite"}]}
Result<std::vector<FileCase>> read_cases(const std::string& path);

// Writes the whole file or nothing. Evidence has the form of bench::evidence_text.
Status write_json(const std::string& path, const nlohmann::ordered_json& value);
Status write_evidence(const std::string& path, const nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench

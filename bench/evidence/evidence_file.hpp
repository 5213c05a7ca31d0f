// JSON files that people and programs hand us: read with limits, held to a schema, never trusted.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cases/cases.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// A regular file of at most 64 MiB and 32 levels.
Result<nlohmann::ordered_json> read_json(const std::string& path);

// Held to docs/evidence/schema.json, of the version that this program writes.
Result<nlohmann::ordered_json> read_evidence(const std::string& path);
Status check_evidence(const nlohmann::ordered_json& evidence);

// A case of a file; `suite` says which table it belongs to, "file" where it does not say.
struct FileCase {
  std::string suite;
  Case one;
  bool backward = false;  // its gradients
};

// {"schema": "flashcore-cases", "version": 1, "cases": [{"name", "dtype", "batch", "heads_q",
//  "heads_kv", "seqlen_q", "seqlen_kv", "head_dim", "causal", "suite"}]}
Result<std::vector<FileCase>> read_cases(const std::string& path);

// Whole or not at all. Evidence is written as bench::evidence_text has it.
Status write_json(const std::string& path, const nlohmann::ordered_json& value);
Status write_evidence(const std::string& path, const nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench

// What every evidence file says about where and with what its numbers were made.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

inline constexpr int kEvidenceVersion = 1;  // of the schema; readers refuse others

// {"schema": "flashcore-evidence", "version", "kind", "created", "library": {version, commit, ...},
//  "host": {processor, threads}}; the caller adds the rest.
nlohmann::ordered_json new_evidence(const std::string& kind);

// Name, compute capability, memory, driver, CUDA versions, clocks and power limit of a GPU.
// cuda_environment.cpp defines it, in builds with CUDA only.
nlohmann::ordered_json cuda_environment(int32_t index);

// {"sm_clock_mhz", "power_watts"} of a GPU now; 0 where it is not known.
nlohmann::ordered_json cuda_state(int32_t index);

// {"p50_us", "p90_us", "samples", "calls_a_sample"}
nlohmann::ordered_json timing_evidence(const Timing& timing);

// Numbers that are not whole to six digits, which is more than any measurement holds.
nlohmann::ordered_json rounded(nlohmann::ordered_json value);

// The text of an evidence file: rounded, a row a line, so that files are small and their changes
// readable. tools/reporting/evidence.py writes the same.
std::string evidence_text(const nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench

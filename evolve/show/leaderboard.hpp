// A run for people: the best programs, and their lineage.
#pragma once

#include <string>
#include <vector>

#include "bench/text/table.hpp"
#include "evolve/store/store.hpp"

namespace flashcore::evolve {

// The best valid programs, best first.
bench::Table leaderboard(const std::vector<Attempt>& attempts, int64_t rows);

// Counts of outcomes: "12 valid, 3 correctness".
std::string outcomes_text(const std::vector<Attempt>& attempts);

// Each attempt below its first parent, indented; invalid ones with their outcome.
std::vector<std::string> lineage(const std::vector<Attempt>& attempts);

// Compares a replay with the run that its lines (replay_lines) record: programs and their parents
// must be the same, times are measured again. Empty if the lines have no outcomes.
std::string reproduction_text(const std::vector<nlohmann::ordered_json>& lines,
                              const std::vector<Attempt>& attempts);

// "3.42x, 118 us (12.1 GFLOP/s, 14% of peak)" or "correctness: ..."
std::string result_text(const Attempt& attempt);

}  // namespace flashcore::evolve

// `flashcore tune`: which candidate is fastest for each problem, by measurement, as a table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/run/run.hpp"
#include "flashcore/flashcore.hpp"
#include "tuning/tuned_table.hpp"

namespace flashcore::bench {

// A candidate replaces the default where it is ahead by more than this, and by more than the noise.
inline constexpr double kLeastGain = 0.02;

// The table of a device: that in use, or that of a path.
struct ShownTable {
  std::string device;  // its name
  std::string place;   // where the table is from; empty: there is none
  std::string path;    // where `flashcore tune` writes unless it is told; may be empty
  tuning::TunedTable table;
};
Result<ShownTable> shown_table(const PlanOptions& plan, const std::string& path);

struct TuneOrder {
  RunOptions run;
  std::string table;   // the path that it is written to; empty: ShownTable::path
  bool again = false;  // also what the table has of this build
};

struct TuneSummary {
  int64_t measured = 0, known = 0;           // problems; known: the table had them
  int64_t winners = 0;                       // that replace the default
  int64_t failures = 0;                      // candidates without a time, for whatever reason
  double mean_regret = 0, worst_regret = 0;  // of the default, relative
  std::string worst;                         // the problem
  double seconds = 0;
  bool interrupted = false, complete = false;
};

struct Tuned {
  std::string table;  // the path
  TuneSummary summary;
  nlohmann::ordered_json evidence;  // null when it was interrupted
};

// In this process and its children, or as such a child.
Result<Tuned> tune(const TuneOrder& order, const std::vector<Subject>& subjects,
                   const PlanOptions& plan);

// What a case's rows say: {"winner", "us", "default", "default_us", "gain", "noise"}; null where the
// default has no time.
nlohmann::ordered_json tuned_json(const nlohmann::ordered_json& one);

// The table's rows in words, for people: "current", "another compiler", "stale".
std::string state_of(const tuning::TunedEntry& entry);

}  // namespace flashcore::bench

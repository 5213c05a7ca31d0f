// `flashcore tune`: measures which candidate is fastest for each problem, and writes a table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/run/run.hpp"
#include "flashcore/flashcore.hpp"
#include "tuning/tuned_table.hpp"

namespace flashcore::bench {

// A candidate replaces the default if it is faster by more than this, and by more than the noise.
inline constexpr double kLeastGain = 0.02;

// A device's table: the one in use, or the one at a path.
struct ShownTable {
  std::string device;  // its name
  std::string place;   // source of the table; empty: there is no table
  std::string path;    // default output path of `flashcore tune`; may be empty
  tuning::TunedTable table;
};
Result<ShownTable> shown_table(const PlanOptions& plan, const std::string& path);

struct TuneOrder {
  RunOptions run;
  std::string table;   // output path; empty: ShownTable::path
  bool again = false;  // also problems that the table has from this build
};

struct TuneSummary {
  int64_t measured = 0, known = 0;           // problems; known: the table had them
  int64_t winners = 0;                       // candidates that replace the default
  int64_t failures = 0;                      // candidates without a time, for any reason
  double mean_regret = 0, worst_regret = 0;  // the default's, relative
  std::string worst;                         // the problem
  double seconds = 0;
  bool interrupted = false, complete = false;
};

struct Tuned {
  std::string table;  // the path
  TuneSummary summary;
  nlohmann::ordered_json evidence;  // null if it was interrupted
};

// Runs in this process and its children, or as such a child.
Result<Tuned> tune(const TuneOrder& order, const std::vector<Subject>& subjects,
                   const PlanOptions& plan);

// The result of a case's rows: {"winner", "us", "default", "default_us", "gain", "noise"}; null if
// the default has no time.
nlohmann::ordered_json tuned_json(const nlohmann::ordered_json& one);

// The state of an entry, for people: "current", "another compiler", "stale".
std::string state_of(const tuning::TunedEntry& entry);

}  // namespace flashcore::bench

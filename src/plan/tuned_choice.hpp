// The kernel that a table of measurements (src/tuning/tuned_table.hpp) names for a problem.
//
// A device's table is looked for once in a process: where FLASHCORE_TUNING says (a file, a folder of
// tables, or `none`), else in the user's cache folder, before those that the library has itself. After
// that a plan looks it up in memory, by one hash.
#pragma once

#include <string>
#include <vector>

#include "kernel/kernel.hpp"
#include "tuning/tuned_table.hpp"

namespace flashcore {

struct TunedChoice {
  const Variant* kernel = nullptr;  // null: the table does not decide
  std::string config;
  std::string named;  // the kernel that the entry names, also where it does not decide
  std::string
      reason;  // a sentence, of an entry that is there: what was measured, or why it is not used
};

// `standing`: what would run without a table.
TunedChoice tuned_choice(const ForwardProblem& problem, const PlanContext& context,
                         const Variant& standing);
TunedChoice tuned_choice(const BackwardProblem& problem, const PlanContext& context,
                         const Variant& standing);

// Where a device's table is from, for people, and what was wrong with the table that was looked for.
struct TuningSource {
  std::string place;    // a path, "of the library"; empty: there is none
  std::string problem;  // a sentence; empty: none
  size_t entries = 0;
};
TuningSource tuning_source(const DeviceInfo& device);

// The table in use; empty where there is none.
tuning::TunedTable tuned_table(const DeviceInfo& device);

// Where `flashcore tune` writes unless it is told: FLASHCORE_TUNING, or the user's cache folder.
// Empty where there is neither.
std::string tuning_path(const DeviceInfo& device);

// Returns whether an entry was measured with a kernel of this build as it is now.
bool is_current(const tuning::TunedEntry& entry);

}  // namespace flashcore

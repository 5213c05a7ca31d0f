// Turns the profiler's counters into advice. Pure functions, tested on recorded output.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// The counters that ncu records, by name.
const std::vector<std::string>& profiler_metrics();

// The counters of one launch.
struct KernelCounters {
  std::string kernel;
  std::map<std::string, double, std::less<>> values;

  double get(std::string_view metric) const;  // 0 if it was not read
};

// Finds `ncu --csv` (one row per launch and metric) in the combined output of the profiler and the
// profiled program. An error names what is missing.
Result<std::vector<KernelCounters>> parse_profiler_csv(std::string_view output);

enum class Bound { compute, memory, latency, launch };
std::string_view to_string(Bound bound);

struct Share {
  std::string name;
  double value = 0;
};

struct Diagnosis {
  std::string kernel;
  double microseconds = 0;
  double tensor_percent = 0;  // Tensor Core cycles while SMs are active
  std::vector<Share> pipes;   // other pipes and issue slots, percent, busiest first
  std::vector<Share> memory;  // DRAM, L2, L1 and shared memory, percent, busiest first
  double l2_hit_percent = 0;
  double conflicts_percent = 0;        // wavefronts of shared memory added by bank conflicts
  double bank_conflicts = 0;           // total
  std::vector<Share> stalls;           // stalled warps per issued instruction, most first
  double occupancy_percent = 0;        // average resident warps
  double occupancy_limit_percent = 0;  // limit by registers, shared memory and block size
  std::string occupancy_limiter;
  double waves = 0;  // grid / blocks that fit on the GPU at once
  int registers = 0;
  double shared_kilobytes = 0;  // per block
  Bound bound = Bound::latency;
  std::string verdict;              // one sentence
  std::vector<std::string> advice;  // suggestions, most promising first
};

Diagnosis diagnose(const KernelCounters& counters);

std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis);
nlohmann::ordered_json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace flashcore::bench

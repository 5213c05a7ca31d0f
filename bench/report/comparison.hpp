// Two evidence files, point by point: what became slower or faster, and what is noise.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// How far the median of a timing is off, relative: two of its standard errors, for samples whose 90th
// percentile is where a normal distribution has it; or the distance between rounds, if that is more.
double spread_of(const nlohmann::ordered_json& time);

enum class Change { same, faster, slower, lost, gained, only_before, only_after };

std::string_view to_string(Change change);

// One implementation on one case.
struct ComparedPoint {
  std::string suite, problem, implementation;  // no suite: the kind of evidence has none
  bool peer = false;
  double before_us = 0, after_us = 0;  // 0: no time
  double ratio = 0;                    // after / before; 0 without both
  double noise = 0;                    // relative; of the ratio
  Change change = Change::same;
};

struct Comparison {
  std::vector<ComparedPoint> points;
  double drift = 1;      // the median ratio of peers, which did not change: that of the machine
  int64_t drift_of = 0;  // how many peers' points that is the median of
  double geometric_mean = 1;  // of our ratios
  bool regressed = false;     // one of ours is slower, or lost its time
};

// Files of one kind from one device; `threshold` is relative, 0.03 for 3%. A point changed when its
// ratio is past both the threshold and its noise. A point is known by its suite, problem and
// implementation; a file with two of one name is refused.
Result<Comparison> compare_evidence(const nlohmann::ordered_json& before,
                                    const nlohmann::ordered_json& after,
                                    const std::string& protocol, double threshold);

}  // namespace flashcore::bench

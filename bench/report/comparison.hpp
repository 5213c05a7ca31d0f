// Compares two evidence files, point by point: what became slower or faster, and what is noise.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// The relative uncertainty of a timing's median: two standard errors, estimated from the 90th
// percentile as if the samples were normal; or the distance between rounds, if that is larger.
double spread_of(const nlohmann::ordered_json& time);

enum class Change { same, faster, slower, lost, gained, only_before, only_after };

std::string_view to_string(Change change);

// One implementation on one case.
struct ComparedPoint {
  std::string suite, problem, implementation;  // no suite: this kind of evidence has none
  bool peer = false;
  double before_us = 0, after_us = 0;  // 0: no time
  double ratio = 0;                    // after / before; 0 without both
  double noise = 0;                    // relative noise of the ratio
  Change change = Change::same;
};

struct Comparison {
  std::vector<ComparedPoint> points;
  double drift = 1;           // the machine's: the median ratio of peers, which did not change
  int64_t drift_of = 0;       // number of peers' points in that median
  double geometric_mean = 1;  // over our ratios
  bool regressed = false;     // one of our points is slower, or lost its time
};

// Compares files of one kind from one device; `threshold` is relative, 0.03 for 3%. A point changed
// if its ratio exceeds both the threshold and its noise. Suite, problem and implementation identify
// a point; a file with two equal points is refused.
Result<Comparison> compare_evidence(const nlohmann::ordered_json& before,
                                    const nlohmann::ordered_json& after,
                                    const std::string& protocol, double threshold);

}  // namespace flashcore::bench

#include "bench/report/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "bench/text/terminal.hpp"
#include "bench/time/timing.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

// One point of one file.
struct Sample {
  std::string suite, problem, implementation;
  bool peer = false;
  double p50_us = 0;  // 0: it failed or was refused
  double spread = 0;  // relative

  // Identifies the same point in another file.
  auto key() const { return std::tie(suite, problem, implementation, peer); }
};

Sample sample_of(const std::string& suite, const std::string& problem, const Json& name, bool peer,
                 const Json* time) {
  Sample sample{.suite = printable(suite),
                .problem = printable(problem),
                .implementation = printable(name.get<std::string>()),
                .peer = peer};
  if (time != nullptr) {
    sample.p50_us = (*time)["p50_us"];
    sample.spread = spread_of(*time);
  }
  return sample;
}

const Json* member(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

void add_bench(const Json& evidence, const std::string& protocol, std::vector<Sample>& samples) {
  for (const Json& one : evidence["cases"]) {
    for (const Json& row : one["rows"]) {
      const std::string problem =
          one["name"].get<std::string>() + " " + one["dtype"].get<std::string>();
      samples.push_back(sample_of(one["suite"], problem, row["implementation"],
                                  row["source"] == "peer", member(row["times"], protocol)));
    }
  }
}

void add_ladder(const Json& evidence, const std::string& protocol, std::vector<Sample>& samples) {
  for (const Json& shape : evidence["shapes"]) {
    const std::string name = shape["name"];
    for (const Json& rung : evidence["rungs"]) {
      const Json* const times = member(rung["times"], name);
      samples.push_back(sample_of("", name, rung["name"], false,
                                  times == nullptr ? nullptr : member(*times, protocol)));
    }
    if (!evidence["peers"].is_object()) continue;
    const Json* const rows = member(evidence["peers"]["shapes"], name);
    for (const Json& row : rows == nullptr ? Json::array() : *rows) {
      samples.push_back(sample_of("", name, row["backend"], true, member(row, protocol)));
    }
  }
}

void add_cpu(const Json& evidence, std::vector<Sample>& samples) {
  for (const char* const part : {"peak", "dtypes", "others"}) {
    for (const Json& row : evidence[part]) {
      Sample sample{.suite = "",
                    .problem = printable(row["case"].get<std::string>()),
                    .implementation = part,
                    .peer = false};
      sample.p50_us = row["seconds"].get<double>() * 1e6;
      samples.push_back(std::move(sample));
    }
  }
}

std::vector<Sample> samples_of(const Json& evidence, const std::string& protocol) {
  std::vector<Sample> samples;
  const std::string kind = evidence["kind"];
  if (kind == "bench") add_bench(evidence, protocol, samples);
  if (kind == "ladder") add_ladder(evidence, protocol, samples);
  if (kind == "cpu") add_cpu(evidence, samples);
  return samples;
}

using Index = std::map<decltype(std::declval<Sample>().key()), const Sample*>;

Result<Index> index_of(const std::vector<Sample>& samples, const char* file) {
  Index index;
  for (const Sample& sample : samples) {
    if (!index.emplace(sample.key(), &sample).second) {
      return invalid("{}: has {} of '{}' twice in suite '{}', wanted one time for each", file,
                     sample.implementation, sample.problem, sample.suite);
    }
  }
  return index;
}

ComparedPoint compared(const Sample* before, const Sample* after, double threshold) {
  const Sample& either = before == nullptr ? *after : *before;
  ComparedPoint point{.suite = either.suite,
                      .problem = either.problem,
                      .implementation = either.implementation,
                      .peer = either.peer};
  point.before_us = before == nullptr ? 0 : before->p50_us;
  point.after_us = after == nullptr ? 0 : after->p50_us;
  if (before == nullptr) {
    point.change = Change::only_after;
  } else if (after == nullptr) {
    point.change = Change::only_before;
  } else if (point.before_us > 0 && point.after_us > 0) {
    point.ratio = point.after_us / point.before_us;
    point.noise = std::hypot(before->spread, after->spread);
    const double far = std::max(threshold, point.noise);
    if (point.ratio > 1 + far) point.change = Change::slower;
    if (point.ratio < 1 / (1 + far)) point.change = Change::faster;
  } else if (point.before_us > 0) {
    point.change = Change::lost;
  } else if (point.after_us > 0) {
    point.change = Change::gained;
  }
  return point;
}

void summarise(Comparison& comparison) {
  std::vector<double> drifts;
  double logs = 0;
  int64_t ours = 0;
  for (const ComparedPoint& point : comparison.points) {
    if (point.peer) {
      if (point.ratio > 0) drifts.push_back(point.ratio);
      continue;
    }
    comparison.regressed =
        comparison.regressed || point.change == Change::slower || point.change == Change::lost;
    if (point.ratio <= 0) continue;
    logs += std::log(point.ratio);
    ++ours;
  }
  comparison.drift_of = std::ssize(drifts);
  if (!drifts.empty()) comparison.drift = quantile(std::move(drifts), 0.5);
  if (ours > 0) comparison.geometric_mean = std::exp(logs / static_cast<double>(ours));
}

}  // namespace

double spread_of(const Json& time) {
  constexpr double kNormalP90 = 1.2816, kMedianError = 1.2533;
  const double p50 = time["p50_us"];
  const double sigma = std::max(0.0, time["p90_us"].get<double>() - p50) / kNormalP90;
  double off = 2 * kMedianError * sigma / std::sqrt(time["samples"].get<double>());
  const Json rounds = time.value("rounds_us", Json::array());
  if (rounds.size() > 1) {
    const auto [low, high] = std::minmax_element(rounds.begin(), rounds.end());
    off = std::max(off, high->get<double>() - low->get<double>());
  }
  return off / p50;
}

std::string_view to_string(Change change) {
  switch (change) {
    case Change::same:
      return "same";
    case Change::faster:
      return "faster";
    case Change::slower:
      return "slower";
    case Change::lost:
      return "lost its time";
    case Change::gained:
      return "has a time now";
    case Change::only_before:
      return "only before";
    case Change::only_after:
      break;
  }
  return "only after";
}

Result<Comparison> compare_evidence(const Json& before, const Json& after,
                                    const std::string& protocol, double threshold) {
  if (before["kind"] != after["kind"]) {
    return invalid("kind: is {} and {}, wanted two files of one kind",
                   before["kind"].get<std::string>(), after["kind"].get<std::string>());
  }
  const auto pass_of = [](const Json& evidence) { return evidence.value("pass", "forward"); };
  if (pass_of(before) != pass_of(after)) {
    return invalid("pass: is {} and {}, wanted two files of one pass", printable(pass_of(before)),
                   printable(pass_of(after)));
  }
  const std::vector<Sample> old_samples = samples_of(before, protocol);
  const std::vector<Sample> new_samples = samples_of(after, protocol);
  const Result<Index> olds = index_of(old_samples, "before"), news = index_of(new_samples, "after");
  if (!olds.ok()) return olds.status();
  if (!news.ok()) return news.status();
  Comparison comparison;
  for (const Sample& sample : old_samples) {
    const auto found = news->find(sample.key());
    comparison.points.push_back(
        compared(&sample, found == news->end() ? nullptr : found->second, threshold));
  }
  for (const Sample& sample : new_samples) {
    if (!olds->contains(sample.key())) {
      comparison.points.push_back(compared(nullptr, &sample, threshold));
    }
  }
  summarise(comparison);
  return comparison;
}

}  // namespace flashcore::bench

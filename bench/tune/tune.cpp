#include "bench/tune/tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "bench/cases/problem_text.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/report/comparison.hpp"
#include "bench/run/watch.hpp"
#include "bench/tune/table_file.hpp"
#include "plan/kernel_names.hpp"
#include "plan/source_fingerprints.hpp"
#include "plan/table.hpp"
#include "plan/tuned_choice.hpp"
#include "plan/tuning_plans.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;
using tuning::TunedEntry, tuning::TunedTable;

// Returns a row's time, or null.
const Json* time_of(const Json& row) {
  const Json& times = row["times"];
  return times.empty() ? nullptr : &times.begin().value();
}

Result<TuningKey> key_of(const Subject& subject, const PlanOptions& plan) {
  return subject.gradients ? tuning_key(subject.problem(), *subject.gradients, plan)
                           : tuning_key(subject.problem(), plan);
}

// Returns the device as plans see it.
Result<DeviceInfo> device_of(const PlanOptions& plan) {
  Problem problem;
  problem.q = problem.k = problem.v = problem.o = TensorDesc::contiguous(DType::f16, {1, 1, 1, 64});
  const Result<TuningKey> key = tuning_key(problem, plan);
  if (!key.ok()) return key.status();
  return key->device;
}

// The name of the problem in an entry.
std::string text_of(const Subject& subject) {
  const std::string text = problem_text(subject.problem());
  return (subject.gradients ? "backward of " + text : text).substr(0, tuning::kMostText);
}

TunedEntry entry_of(const Json& tuned, const std::string& winner, double us, const std::string& day,
                    const Subject& subject) {
  const AskedName asked = asked_name(winner);
  TunedEntry entry{.kernel = asked.name,
                   .config = asked.config,
                   .is_default = winner == tuned["default"].get<std::string>(),
                   .fingerprint = {},
                   .compiler = {},
                   .us = us,
                   .default_us = tuned["default_us"],
                   .noise = tuned["noise"],
                   .default_kernel = tuned["default"],
                   .measured = day,
                   .problems = {text_of(subject)}};
  if (const Variant* const variant = find_variant(entry.kernel); variant != nullptr) {
    entry.fingerprint = source_fingerprint(*variant);
    entry.compiler = compiler_of(*variant);
  }
  return entry;
}

class Tuner {
 public:
  Tuner(const TuneOrder& order, const PlanOptions& plan)
      : order_(order),
        plan_(plan),
        day_(new_evidence("bench")["created"].get<std::string>().substr(0, 10)) {}

  // Returns whether the table has exactly this problem, from this build. Reads the table every
  // time, because another tuner may have added to it.
  bool is_known(const Subject& subject) const {
    if (order_.again) return false;
    const Result<TuningKey> key = key_of(subject, plan_);
    if (!key.ok()) return false;
    if (key->text.empty()) return true;
    const Result<TunedTable> table = open_table(order_.table, tuning::tuned_device(key->device));
    if (!table.ok()) return false;
    const auto found = table->entries.find(key->text);
    if (found == table->entries.end() || !is_current(found->second)) return false;
    const std::vector<std::string>& problems = found->second.problems;
    return std::find(problems.begin(), problems.end(), text_of(subject)) != problems.end();
  }

  Status keep(const Subject& subject, Json& one) const {
    const Json tuned = tuned_json(one);
    if (tuned.is_null()) return {};  // nothing passed: the rows have the reasons
    one["tuned"] = tuned;
    const Result<TuningKey> key = key_of(subject, plan_);
    if (!key.ok()) return key.status();
    if (key->text.empty()) return {};
    one["tuned"]["key"] = key->text;
    const std::string winner = tuned["winner"], standing = tuned["default"];
    const TunedEntry best = entry_of(tuned, winner, tuned["us"], day_, subject);
    const TunedEntry fallback = entry_of(tuned, standing, tuned["default_us"], day_, subject);
    return update_table(order_.table, tuning::tuned_device(key->device), [&](TunedTable& table) {
      const auto known = table.entries.find(key->text);
      const bool current = known != table.entries.end() && is_current(known->second);
      tuning::merge(table, key->text, best, fallback, current);
    });
  }

  // With --again: first deletes the table's entries for these problems, so that problems that share
  // a key are compared only with this run's measurements.
  Status forget(const std::vector<Subject>& subjects) const {
    std::set<std::string> keys;
    std::optional<DeviceInfo> device;
    for (const Subject& subject : subjects) {
      const Result<TuningKey> key = key_of(subject, plan_);
      if (!key.ok()) continue;
      keys.insert(key->text);
      device = key->device;
    }
    if (!device) return {};
    return update_table(order_.table, tuning::tuned_device(*device), [&](TunedTable& table) {
      for (const std::string& key : keys) table.entries.erase(key);
    });
  }

 private:
  const TuneOrder& order_;
  const PlanOptions& plan_;
  std::string day_;
};

TuneSummary summary_of(const Json& evidence, size_t subjects) {
  TuneSummary summary;
  double regrets = 0;
  int64_t timed = 0;
  for (const Json& one : evidence["cases"]) {
    ++summary.measured;
    for (const Json& row : one["rows"]) {
      if (time_of(row) == nullptr) ++summary.failures;
    }
    if (!one.contains("tuned")) continue;
    ++timed;
    const double gain = one["tuned"]["gain"];
    regrets += gain;
    if (gain > 0) ++summary.winners;
    if (gain > summary.worst_regret) {
      summary.worst_regret = gain;
      summary.worst = one["name"];
    }
  }
  if (timed > 0) summary.mean_regret = regrets / static_cast<double>(timed);
  summary.complete = evidence["complete"];
  if (summary.complete) summary.known = static_cast<int64_t>(subjects) - summary.measured;
  summary.seconds = evidence.contains("seconds") && evidence["seconds"].contains("all")
                        ? evidence["seconds"]["all"].get<double>()
                        : 0;
  return summary;
}

}  // namespace

Json tuned_json(const Json& one) {
  const Json *standing = nullptr, *best = nullptr;
  for (const Json& row : one["rows"]) {
    const Json* const time = time_of(row);
    if (time == nullptr) continue;
    if (row.value("default", false)) standing = &row;
    if (best == nullptr || (*time)["p50_us"] < (*time_of(*best))["p50_us"]) best = &row;
  }
  if (standing == nullptr) return {};
  const Json &own = *time_of(*standing), &least = *time_of(*best);
  const double own_us = own["p50_us"], best_us = least["p50_us"];
  const double gain = own_us / best_us - 1;
  const double noise = std::hypot(spread_of(own), spread_of(least));
  const bool wins = best != standing && gain > std::max(kLeastGain, noise);
  return {{"winner", (wins ? *best : *standing)["implementation"]},
          {"us", wins ? best_us : own_us},
          {"default", (*standing)["implementation"]},
          {"default_us", own_us},
          {"gain", wins ? gain : 0},
          {"noise", noise},
          {"fastest", (*best)["implementation"]},
          {"fastest_us", best_us}};
}

std::string state_of(const TunedEntry& entry) {
  const Variant* const variant = find_variant(present_name(entry.kernel));
  if (variant == nullptr) return "stale: this build has no such kernel";
  if (entry.fingerprint != source_fingerprint(*variant)) return "stale: its source has changed";
  return entry.compiler == compiler_of(*variant) ? "current"
                                                 : "another compiler: " + entry.compiler;
}

Result<ShownTable> shown_table(const PlanOptions& plan, const std::string& path) {
  const Result<DeviceInfo> device = device_of(plan);
  if (!device.ok()) return device.status();
  ShownTable shown{
      .device = device->name, .place = path, .path = tuning_path(*device), .table = {}};
  if (path.empty()) {
    const TuningSource source = tuning_source(*device);
    if (!source.problem.empty()) return Status(StatusCode::invalid_argument, source.problem);
    shown.place = source.place;
    shown.table = tuned_table(*device);
    return shown;
  }
  Result<TunedTable> read = open_table(path, tuning::tuned_device(*device));
  if (!read.ok()) return read.status();
  shown.table = std::move(*read);
  return shown;
}

Result<Tuned> tune(const TuneOrder& asked, const std::vector<Subject>& subjects,
                   const PlanOptions& plan) {
  TuneOrder order = asked;
  const Result<DeviceInfo> device = device_of(plan);
  if (!device.ok()) return device.status();
  if (order.table.empty()) order.table = tuning_path(*device);
  if (order.table.empty()) {
    return invalid("--out: is missing, and there is no user's cache folder (XDG_CACHE_HOME, HOME)");
  }
  const Tuner tuner(order, plan);
  RunOptions run = order.run;
  run.tuning =
      Tuning{.is_known = [&](const Subject& one) { return tuner.is_known(one); },
             .finished = [&](const Subject& one, Json& json) { return tuner.keep(one, json); }};
  const int64_t all = info_of(plan.device).multiprocessors;
  if (device->multiprocessors < all) run.tuning->grid_limit = device->multiprocessors;
  if (!run.worker.empty()) {
    FLASHCORE_RETURN_IF_ERROR(work_for_watcher(run, subjects, plan));
    return Tuned{};
  }
  // Finds out before the work if a file cannot be read or written.
  FLASHCORE_RETURN_IF_ERROR(
      update_table(order.table, tuning::tuned_device(*device), [](TunedTable&) {}));
  if (order.again) FLASHCORE_RETURN_IF_ERROR(tuner.forget(subjects));
  Result<Watched> watched = watch_cases(run, subjects, plan);
  if (!watched.ok()) return watched.status();
  Tuned tuned;
  tuned.table = order.table;
  tuned.summary.interrupted = watched->interrupted;
  if (!watched->interrupted) {
    tuned.summary = summary_of(watched->evidence, subjects.size());
    tuned.evidence = std::move(watched->evidence);
  }
  return tuned;
}

}  // namespace flashcore::bench

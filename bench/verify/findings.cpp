#include "bench/verify/findings.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "bench/cases/random_backward.hpp"
#include "bench/cases/random_problem.hpp"
#include "cpu/parallel.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

void Tally::refuse(const std::string& sentence) {
  ++refused;
  if (refusal.empty()) refusal = sentence;
}

void Tally::add(const Verdict& verdict, const std::string& where) {
  ++(verdict.passed ? passed : failed);
  if (!verdict.repeats) ++different;
  if (!verdict.passed && failure.empty()) failure = where + ": " + verdict.failure;
  max_scaled_error = std::max(max_scaled_error, verdict.max_scaled_error);
  relative_error = std::max(relative_error, verdict.relative_error);
  lse_error = std::max(lse_error, verdict.lse_error);
  launched.insert(verdict.launched.begin(), verdict.launched.end());
}

void Findings::refuse(const std::string& kernel, const std::string& sentence) {
  const std::scoped_lock lock(mutex_);
  tallies_[kernel].refuse(sentence);
}

void Findings::add(const std::string& kernel, const Verdict& verdict, const Trial& trial) {
  const std::scoped_lock lock(mutex_);
  tallies_[kernel].add(verdict, trial.name);
  if (verdict.passed) return;
  const auto& [problem, gradients] = trial.pass;
  failures_.push_back({trial.seed, trial.name, kernel, verdict.failure,
                       gradients ? describe(problem, *gradients) : describe(problem),
                       trial.repeat ? trial.repeat(kernel) : ""});
}

std::vector<Failure> Findings::failures() const {
  std::vector<Failure> sorted = failures_;
  std::sort(sorted.begin(), sorted.end(), [](const Failure& a, const Failure& b) {
    return std::tie(a.seed, a.name, a.kernel) < std::tie(b.seed, b.name, b.kernel);
  });
  return sorted;
}

nlohmann::ordered_json tallies_json(const Findings& found) {
  auto kernels = nlohmann::ordered_json::array();
  for (const auto& [kernel, tally] : found.tallies()) {
    kernels.push_back({{"kernel", kernel},
                       {"passed", tally.passed},
                       {"failed", tally.failed},
                       {"refused", tally.refused},
                       {"max_scaled_error", tally.max_scaled_error},
                       {"relative_error", tally.relative_error},
                       {"lse_error", tally.lse_error}});
  }
  return kernels;
}

nlohmann::ordered_json failures_json(const Findings& found) {
  auto failures = nlohmann::ordered_json::array();
  for (const Failure& failure : found.failures()) {
    failures.push_back({{"name", failure.name},
                        {"kernel", failure.kernel},
                        {"failure", failure.what},
                        {"problem", failure.problem},
                        {"repeat", failure.repeat}});
  }
  return failures;
}

Status judge_trial(const Trial& trial, const Tested& tested, Findings& found,
                   const std::function<void(const std::string&)>& step) {
  const Result<std::vector<KernelVerdict>> kernels =
      kernels_under_test(trial.pass, tested.plan, true, tested.kernels);
  if (!kernels.ok()) return kernels.status();
  KernelJudge judge;
  for (const KernelVerdict& kernel : *kernels) {
    if (!kernel.refusal.empty()) {
      found.refuse(kernel.kernel, kernel.refusal);
      continue;
    }
    if (!judge) {
      if (step) step(trial.name + ", reference");
      Result<KernelJudge> prepared = trial.prepare();
      if (!prepared.ok()) return prepared.status();
      judge = std::move(*prepared);
    }
    if (step) step(trial.name + ", " + kernel.kernel);
    found.add(kernel.kernel, judge(kernel.kernel), trial);
  }
  return {};
}

Status for_each_trial(const std::string& task, int64_t count, int threads,
                      const std::function<std::string(int64_t)>& name,
                      const std::function<Status(int64_t)>& judge) {
  Progress progress(Progress::usual(), task, count);
  std::mutex mutex;
  Status error;
  cpu::parallel_for(count, threads, [&](int64_t n) {
    {
      const std::scoped_lock lock(mutex);
      if (!error.ok()) return;
      progress.step(name(n));
    }
    const Status status = judge(n);
    const std::scoped_lock lock(mutex);
    if (!status.ok() && error.ok()) error = status;
    progress.advance();
  });
  return error;
}

}  // namespace flashcore::bench

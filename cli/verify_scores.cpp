#include "cli/verify_scores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "bench/cases/score_cases.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/text/progress.hpp"
#include "bench/text/table.hpp"
#include "cli/verify_kernel.hpp"
#include "cpu/parallel.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Failure {
  std::string name, kernel, what, problem;
};

// What all problems came to; several threads add to it.
struct Found {
  std::mutex mutex;
  std::map<std::string, Tally> tallies;
  std::vector<Failure> failures;
  Status error;  // the first of the program's own, which ends it
};

Result<std::vector<bench::ScoreCase>> asked_cases(const std::vector<std::string>& prefixes) {
  std::vector<bench::ScoreCase> asked;
  const std::vector<bench::ScoreCase> all = bench::score_cases();
  for (const std::string& prefix : prefixes) {
    const size_t before = asked.size();
    for (const bench::ScoreCase& one : all) {
      if (one.name.starts_with(prefix)) asked.push_back(one);
    }
    if (asked.size() == before) {
      return invalid("--shapes: is 'scores/{}', wanted the beginning of a problem's name", prefix);
    }
  }
  return asked;
}

Status verify_one(const bench::ScoreCase& one, const PlanOptions& plan, Found& found) {
  const Result<std::vector<KernelVerdict>> kernels =
      bench::kernels_under_test(one.problem, plan, true);
  if (!kernels.ok()) return kernels.status();
  std::optional<bench::HostProblem> host;
  bench::Reference reference;
  for (const KernelVerdict& kernel : *kernels) {
    if (!kernel.refusal.empty()) {
      const std::scoped_lock lock(found.mutex);
      found.tallies[kernel.kernel].refuse(kernel.refusal);
      continue;
    }
    if (!host) {  // the first kernel that computes it
      host = bench::fill(one);
      Result<bench::Reference> computed = bench::score_reference(one, *host, plan.threads);
      if (!computed.ok()) return computed.status();
      reference = std::move(*computed);
    }
    const bench::Verdict verdict = judge_kernel(*host, reference, plan, kernel.kernel);
    const std::scoped_lock lock(found.mutex);
    found.tallies[kernel.kernel].add(verdict, one.name);
    if (!verdict.passed) {
      found.failures.push_back(
          {one.name, kernel.kernel, verdict.failure, bench::describe(one.problem)});
    }
  }
  return {};
}

std::string repeat(const Failure& failure, const PlanOptions& plan) {
  std::string line = fmt::format("flashcore verify --shapes scores/{} --random 0 --kernel {}",
                                 failure.name, failure.kernel);
  if (plan.device.kind == DeviceKind::cuda) line += " --device " + bench::to_text(plan.device);
  return line;
}

}  // namespace

Result<Json> verify_scores(const std::vector<std::string>& prefixes, const PlanOptions& plan,
                           Session& session) {
  const Result<std::vector<bench::ScoreCase>> asked = asked_cases(prefixes);
  if (!asked.ok()) return asked.status();
  const std::vector<bench::ScoreCase>& cases = *asked;
  Found found;
  {
    bench::Progress progress(bench::Progress::usual(), "scores", std::ssize(cases));
    PlanOptions alone = plan;  // each thread computes a problem of its own
    alone.threads = 1;
    cpu::parallel_for(std::ssize(cases), plan.threads, [&](int64_t n) {
      const bench::ScoreCase& one = cases[static_cast<size_t>(n)];
      {
        const std::scoped_lock lock(found.mutex);
        if (!found.error.ok()) return;
        progress.step(one.name);
      }
      const Status status = verify_one(one, alone, found);
      const std::scoped_lock lock(found.mutex);
      if (!status.ok() && found.error.ok()) found.error = status;
      progress.advance();
    });
  }
  if (!found.error.ok()) return found.error;
  std::sort(found.failures.begin(), found.failures.end(), [](const Failure& a, const Failure& b) {
    return std::tie(a.kernel, a.name) < std::tie(b.kernel, b.name);
  });

  bench::Table table({{"hard scores"},
                      {"passed", bench::Align::right},
                      {"failed", bench::Align::right},
                      {"refused", bench::Align::right},
                      {"gate"}});
  Json kernels = Json::array();
  for (const auto& [kernel, tally] : found.tallies) {
    table.row({kernel, std::to_string(tally.passed), std::to_string(tally.failed),
               std::to_string(tally.refused), tally.mark(session)});
    kernels.push_back({{"kernel", kernel},
                       {"passed", tally.passed},
                       {"failed", tally.failed},
                       {"refused", tally.refused},
                       {"max_scaled_error", tally.max_scaled_error},
                       {"relative_error", tally.relative_error},
                       {"lse_error", tally.lse_error}});
  }
  session.line();
  for (const std::string& line : table.lines()) session.line(line);
  Json failures = Json::array();
  for (const Failure& failure : found.failures) {
    const std::string again = repeat(failure, plan);
    session.line(fmt::format("failed: {}: {}: {}", failure.kernel, failure.name, failure.what));
    session.line("  repeat: " + again);
    failures.push_back({{"name", failure.name},
                        {"kernel", failure.kernel},
                        {"failure", failure.what},
                        {"problem", failure.problem},
                        {"repeat", again}});
  }
  return Json{{"problems", cases.size()}, {"kernels", kernels}, {"failures", failures}};
}

}  // namespace flashcore::cli

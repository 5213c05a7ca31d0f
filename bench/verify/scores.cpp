#include "bench/verify/scores.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/verify/kernel.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string repeat(const std::string& name, const std::string& kernel, Device device) {
  return fmt::format("flashcore verify --shapes scores/{} --random 0 --kernel {}{}", name, kernel,
                     repeat_device(device));
}

}  // namespace

Result<std::vector<ScoreCase>> score_cases_of(const std::vector<std::string>& prefixes) {
  std::vector<ScoreCase> asked;
  const std::vector<ScoreCase> all = score_cases();
  for (const std::string& prefix : prefixes) {
    const size_t before = asked.size();
    for (const ScoreCase& one : all) {
      if (one.name.starts_with(prefix)) asked.push_back(one);
    }
    if (asked.size() == before) {
      return invalid("--shapes: is 'scores/{}', wanted the beginning of a problem's name", prefix);
    }
  }
  return asked;
}

Result<Json> judge_scores(const std::vector<ScoreCase>& cases, const Tested& tested,
                          Findings& found) {
  Tested alone = tested;  // each thread computes its own problem
  alone.plan.threads = 1;
  const auto at = [&](int64_t n) -> const ScoreCase& { return cases[static_cast<size_t>(n)]; };
  const Status status = for_each_trial(
      "scores", std::ssize(cases), tested.plan.threads, [&](int64_t n) { return at(n).name; },
      [&](int64_t n) {
        const ScoreCase& one = at(n);
        return judge_trial(
            {.name = one.name,
             .pass = {one.problem},
             .prepare =
                 [&] {
                   return kernel_judge(
                       fill(one), [&](HostProblem& host) { return score_reference(one, host, 1); },
                       alone.plan, 0);
                 },
             .repeat =
                 [&](const std::string& kernel) {
                   return repeat(one.name, kernel, tested.plan.device);
                 }},
            alone, found);
      });
  if (!status.ok()) return status;
  return Json{{"problems", cases.size()},
              {"kernels", tallies_json(found)},
              {"failures", failures_json(found)}};
}

}  // namespace flashcore::bench

#include "bench/verify/gate_table.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace flashcore::bench {

Result<std::vector<GateRow>> judge_table(const std::vector<Case>& cases,
                                         const std::vector<int64_t>& seeds, const Tested& tested,
                                         bool backward) {
  std::vector<GateRow> rows;
  if (cases.empty()) return rows;
  Progress progress(Progress::usual(), "verify", std::ssize(cases) * std::ssize(seeds));
  for (const Case& one : cases) {
    Findings found;
    for (const int64_t seed : seeds) {
      const auto number = static_cast<uint64_t>(seed);
      const std::string name = fmt::format("{} {}{} seed {}", one.name, to_string(one.dtype),
                                           one.causal ? " causal" : "", seed);
      const auto step = [&](const std::string& what) { progress.step(what); };
      const int threads = tested.plan.threads;
      Trial trial{.seed = number, .name = name, .pass = {to_problem(one)}};
      trial.prepare = [&] {
        return kernel_judge(
            fill(one, number), [&](HostProblem& host) { return compute_reference(host, threads); },
            tested.plan, number);
      };
      if (backward) {
        const Gradients gradients = gradients_of(trial.pass.problem, false);
        trial.pass.gradients = gradients;
        trial.prepare = [&, gradients] {
          return kernel_judge(make_host_backward(fill(one, number), gradients, number, threads),
                              false, tested.plan, number);
        };
      }
      const Status status = judge_trial(trial, tested, found, step);
      if (!status.ok()) return status;
      progress.advance();
    }
    for (const auto& [kernel, tally] : found.tallies()) rows.push_back({one, kernel, tally});
  }
  return rows;
}

nlohmann::ordered_json gate_rows_json(const std::vector<GateRow>& rows,
                                      const std::vector<int64_t>& seeds) {
  auto all = nlohmann::ordered_json::array();
  for (const auto& [one, kernel, tally] : rows) {
    all.push_back({{"shape", one.name},
                   {"dtype", to_string(one.dtype)},
                   {"causal", one.causal},
                   {"kernel", kernel},
                   {"seeds", seeds},
                   {"passed", tally.passed > 0 && tally.failed == 0},
                   {"refusal", tally.refusal},
                   {"failure", tally.failure},
                   {"max_scaled_error", tally.max_scaled_error},
                   {"relative_error", tally.relative_error},
                   {"lse_error", tally.lse_error}});
  }
  return all;
}

}  // namespace flashcore::bench

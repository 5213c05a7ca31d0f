#include "cli/verify_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/cases/cases.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/text/numbers.hpp"
#include "bench/text/progress.hpp"
#include "bench/text/table.hpp"
#include "cli/verify_kernel.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

// Every row of the gate table: shape, causal or not, and type; seeds are folded into the row.
Result<std::vector<bench::Case>> table_cases(const VerifyTable& asked) {
  std::vector<bench::Case> cases;
  for (const std::string& name : bench::split(asked.shapes, ',')) {
    if (name == "none") continue;
    const std::vector<bench::Case> shapes = bench::gate_shapes();
    const auto shape = std::find_if(shapes.begin(), shapes.end(),
                                    [&](const bench::Case& one) { return one.name == name; });
    if (shape == shapes.end()) {
      return invalid("--shapes: is '{}', wanted small, mission, long, wide, scores or none", name);
    }
    for (const std::string& dtype_name : bench::split(asked.dtypes, ',')) {
      const std::optional<DType> dtype = dtype_from_string(dtype_name);
      if (!dtype)
        return invalid("--dtypes: is '{}', wanted f32, f16, bf16, f8e4m3, f8e5m2", dtype_name);
      for (const bool causal : {false, true}) {
        cases.push_back(*shape);
        cases.back().dtype = *dtype;
        cases.back().causal = causal;
      }
    }
  }
  return cases;
}

// All kernels on all seeds of one row's problem; the reference is computed once a seed.
Result<std::map<std::string, Tally>> verify_case(const bench::Case& one,
                                                 const std::vector<int64_t>& seeds,
                                                 const PlanOptions& plan,
                                                 bench::Progress& progress) {
  const Problem problem = bench::to_problem(one);
  const Result<std::vector<KernelVerdict>> kernels = bench::kernels_under_test(problem, plan, true);
  if (!kernels.ok()) return kernels.status();
  const std::string label =
      fmt::format("{} {}{}", one.name, to_string(one.dtype), one.causal ? " causal" : "");
  std::map<std::string, Tally> tallies;
  for (const int64_t seed : seeds) {
    bench::HostProblem host = bench::make_host_problem(problem, static_cast<uint64_t>(seed));
    progress.step(label + ", reference");
    const Result<bench::Reference> reference = bench::compute_reference(host, plan.threads);
    if (!reference.ok()) return reference.status();
    for (const KernelVerdict& kernel : *kernels) {
      Tally& tally = tallies[kernel.kernel];
      if (!kernel.refusal.empty()) {
        tally.refuse(kernel.refusal);
        continue;
      }
      progress.step(label + ", " + kernel.kernel);
      tally.add(judge_kernel(host, *reference, plan, kernel.kernel),
                fmt::format("{} {} seed {}", kernel.kernel, label, seed));
    }
    progress.advance();
  }
  return tallies;
}

nlohmann::ordered_json row_json(const bench::Case& one, const std::vector<int64_t>& seeds,
                                const std::string& kernel, const Tally& tally) {
  return {{"shape", one.name},
          {"dtype", to_string(one.dtype)},
          {"causal", one.causal},
          {"kernel", kernel},
          {"seeds", seeds},
          {"passed", tally.passed > 0 && tally.failed == 0},
          {"refusal", tally.refusal},
          {"failure", tally.failure},
          {"max_scaled_error", tally.max_scaled_error},
          {"relative_error", tally.relative_error},
          {"lse_error", tally.lse_error}};
}

// The same row for people.
std::vector<std::string> row_cells(const Session& session, const nlohmann::ordered_json& row,
                                   const Tally& tally) {
  const auto number = [&](const char* name) {
    return tally.refused > 0 ? std::string("-") : fmt::format("{:.2e}", row[name].get<double>());
  };
  return {row["shape"],
          row["dtype"],
          row["causal"] ? "causal" : "full",
          row["kernel"],
          fmt::format("{}/{}", tally.passed, tally.passed + tally.failed + tally.refused),
          number("max_scaled_error"),
          number("relative_error"),
          number("lse_error"),
          tally.mark(session)};
}

}  // namespace

Result<nlohmann::ordered_json> verify_table(const VerifyTable& asked, const PlanOptions& plan,
                                            Session& session) {
  const Result<std::vector<bench::Case>> cases = table_cases(asked);
  if (!cases.ok()) return cases.status();
  auto rows = nlohmann::ordered_json::array();
  if (cases->empty()) return rows;
  const std::vector<int64_t>& seeds = asked.seeds;
  bench::Table table({{"shape"},
                      {"dtype"},
                      {"mask"},
                      {"kernel"},
                      {"seeds", bench::Align::right},
                      {"scaled error", bench::Align::right},
                      {"relative", bench::Align::right},
                      {"LSE", bench::Align::right},
                      {"gate"}});
  std::vector<std::string> failures;
  {
    bench::Progress progress(bench::Progress::usual(), "verify",
                             std::ssize(*cases) * std::ssize(seeds));
    for (const bench::Case& one : *cases) {
      const Result<std::map<std::string, Tally>> tallies = verify_case(one, seeds, plan, progress);
      if (!tallies.ok()) return tallies.status();
      for (const auto& [kernel, tally] : *tallies) {
        rows.push_back(row_json(one, seeds, kernel, tally));
        table.row(row_cells(session, rows.back(), tally));
        if (tally.failed > 0) failures.push_back("failed: " + tally.failure);
      }
    }
  }
  for (const std::string& line : table.lines()) session.line(line);
  for (const std::string& failure : failures) session.line(failure);
  return rows;
}

}  // namespace flashcore::cli

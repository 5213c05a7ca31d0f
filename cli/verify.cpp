// flashcore verify: the gate table, then random problems over the whole feature space.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/cases.hpp"
#include "bench/gates.hpp"
#include "bench/random_problem.hpp"
#include "cli/command.hpp"
#include "cli/execution.hpp"
#include "cli/plan_choice.hpp"
#include "cli/problem_options.hpp"
#include "cli/progress.hpp"
#include "cli/report.hpp"
#include "cli/table.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

struct Options {
  PlanChoice choice;
  std::string shapes = "small,mission,long,wide";
  std::string dtypes = "f16";
  std::string seeds = "0,1,2";
  int64_t random = 100;
  uint64_t random_seed = 0;
};

// The worst of a row's seeds, or of a kernel's random problems.
struct Tally {
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t refused = 0;
  std::string failure;  // the first
  std::string refusal;  // likewise
  double max_scaled_error = 0, relative_error = 0, lse_error = 0;

  void refuse(const std::string& sentence) {
    ++refused;
    if (refusal.empty()) refusal = sentence;
  }

  void add(const bench::Verdict& verdict, const std::string& where) {
    ++(verdict.passed ? passed : failed);
    if (!verdict.passed && failure.empty()) failure = where + ": " + verdict.failure;
    max_scaled_error = std::max(max_scaled_error, verdict.max_scaled_error);
    relative_error = std::max(relative_error, verdict.relative_error);
    lse_error = std::max(lse_error, verdict.lse_error);
  }
};

// Runs one kernel on poisoned outputs and judges what it wrote. An error is a failed verdict.
bench::Verdict judge_kernel(bench::HostProblem& host, const bench::Reference& reference,
                            PlanOptions options, const std::string& kernel) {
  bench::Verdict verdict;
  options.kernel = kernel;
  for (auto& [name, tensor] : host.tensors) {
    if (bench::is_output(name)) tensor.poison();
  }
  const Result<Plan> plan = make_plan(host.problem, options);
  const Status status = [&]() -> Status {
    if (!plan.ok()) return plan.status();
    Result<Execution> execution = Execution::prepare(*plan, options.device, host);
    if (!execution.ok()) return execution.status();
    FLASHCORE_RETURN_IF_ERROR(execution->run());
    return execution->fetch();
  }();
  if (status.ok()) return bench::judge(host, reference);
  verdict.failure = status.message();
  return verdict;
}

// Every row of the gate table: shape, causal or not, and type; seeds are folded into the row.
Result<std::vector<bench::Case>> table_cases(const Options& options) {
  std::vector<bench::Case> cases;
  for (const std::string& name : split(options.shapes, ',')) {
    if (name == "none") continue;
    const std::vector<bench::Case> shapes = bench::gate_shapes();
    const auto shape = std::find_if(shapes.begin(), shapes.end(),
                                    [&](const bench::Case& one) { return one.name == name; });
    if (shape == shapes.end()) {
      return invalid("--shapes: is '{}', wanted small, mission, long, wide or none", name);
    }
    for (const std::string& dtype_name : split(options.dtypes, ',')) {
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

// What one `verify` has found so far.
struct Findings {
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  nlohmann::ordered_json random = nullptr;
  bool failed = false;
};

std::string mark(const Session& session, const Tally& tally) {
  if (tally.failed > 0) return session.styled("FAILED", Tone::bad);
  return tally.passed > 0 ? session.styled("passed", Tone::good) : "refused";
}

// All kernels on all seeds of one row's problem; the reference is computed once a seed.
Result<std::map<std::string, Tally>> verify_case(const bench::Case& one,
                                                 const std::vector<int64_t>& seeds,
                                                 const PlanOptions& plan, Progress& progress) {
  const Problem problem = bench::to_problem(one);
  const Result<std::vector<KernelVerdict>> kernels = kernels_under_test(problem, plan, true);
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
          mark(session, tally)};
}

Status verify_table(const Options& options, const std::vector<int64_t>& seeds,
                    const PlanOptions& plan, Session& session, Findings& findings) {
  const Result<std::vector<bench::Case>> cases = table_cases(options);
  if (!cases.ok()) return cases.status();
  if (cases->empty()) return {};
  Table table({{"shape"},
               {"dtype"},
               {"mask"},
               {"kernel"},
               {"seeds", Align::right},
               {"scaled error", Align::right},
               {"relative", Align::right},
               {"LSE", Align::right},
               {"gate"}});
  std::vector<std::string> failures;
  {
    Progress progress(session.shows_progress(), "verify", std::ssize(*cases) * std::ssize(seeds));
    for (const bench::Case& one : *cases) {
      const Result<std::map<std::string, Tally>> tallies = verify_case(one, seeds, plan, progress);
      if (!tallies.ok()) return tallies.status();
      for (const auto& [kernel, tally] : *tallies) {
        findings.table.push_back(row_json(one, seeds, kernel, tally));
        table.row(row_cells(session, findings.table.back(), tally));
        if (tally.failed > 0) failures.push_back("failed: " + tally.failure);
      }
    }
  }
  for (const std::string& line : table.lines()) session.line(line);
  for (const std::string& failure : failures) session.line(failure);
  findings.failed = findings.failed || !failures.empty();
  return {};
}

struct RandomFailure {
  uint64_t seed;
  std::string kernel, what, problem;

  std::string repeat(const PlanOptions& plan) const {
    return fmt::format(
        "flashcore verify --shapes none --random 1 --random-seed {} --kernel {}{}", seed, kernel,
        plan.device.kind == DeviceKind::cuda ? " --device " + to_text(plan.device) : "");
  }
};

// All kernels on one random problem.
Status verify_seed(uint64_t seed, const PlanOptions& plan, std::map<std::string, Tally>& tallies,
                   std::vector<RandomFailure>& failures) {
  bench::HostProblem host = bench::random_problem(seed);
  const Result<std::vector<KernelVerdict>> kernels = kernels_under_test(host.problem, plan, true);
  if (!kernels.ok()) return kernels.status();
  std::optional<bench::Reference> reference;  // dear, and not needed where all refuse
  for (const KernelVerdict& kernel : *kernels) {
    Tally& tally = tallies[kernel.kernel];
    if (!kernel.refusal.empty()) {
      tally.refuse(kernel.refusal);
      continue;
    }
    if (!reference) {
      Result<bench::Reference> computed = bench::compute_reference(host, plan.threads);
      if (!computed.ok()) return computed.status();
      reference = std::move(*computed);
    }
    const bench::Verdict verdict = judge_kernel(host, *reference, plan, kernel.kernel);
    tally.add(verdict, fmt::format("seed {}", seed));
    if (!verdict.passed) {
      failures.push_back({seed, kernel.kernel, verdict.failure, bench::describe(host.problem)});
    }
  }
  return {};
}

Status verify_random(const Options& options, const PlanOptions& plan, Session& session,
                     Findings& findings) {
  std::map<std::string, Tally> tallies;
  std::vector<RandomFailure> failures;
  {
    Progress progress(session.shows_progress(), "random", options.random);
    for (int64_t n = 0; n < options.random; ++n) {
      const uint64_t seed = options.random_seed + static_cast<uint64_t>(n);
      progress.step(fmt::format("seed {}", seed));
      FLASHCORE_RETURN_IF_ERROR(verify_seed(seed, plan, tallies, failures));
      progress.advance();
    }
  }
  Table table({{"random problems"},
               {"passed", Align::right},
               {"failed", Align::right},
               {"refused", Align::right},
               {"gate"}});
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const auto& [kernel, tally] : tallies) {
    table.row({kernel, std::to_string(tally.passed), std::to_string(tally.failed),
               std::to_string(tally.refused), mark(session, tally)});
    kernels.push_back({{"kernel", kernel},
                       {"passed", tally.passed},
                       {"failed", tally.failed},
                       {"refused", tally.refused}});
  }
  session.line();
  for (const std::string& line : table.lines()) session.line(line);
  session.line(fmt::format("seeds {} to {}", options.random_seed,
                           options.random_seed + static_cast<uint64_t>(options.random) - 1));
  nlohmann::ordered_json failed = nlohmann::ordered_json::array();
  for (const RandomFailure& failure : failures) {
    session.line(fmt::format("failed: {}: {}", failure.kernel, failure.what));
    session.line("  " + failure.problem);
    session.line("  repeat: " + failure.repeat(plan));
    failed.push_back({{"seed", failure.seed},
                      {"kernel", failure.kernel},
                      {"failure", failure.what},
                      {"problem", failure.problem},
                      {"repeat", failure.repeat(plan)}});
  }
  findings.failed = findings.failed || !failures.empty();
  findings.random = {{"problems", options.random},
                     {"first_seed", options.random_seed},
                     {"kernels", kernels},
                     {"failures", failed}};
  return {};
}

Result<ExitCode> execute(const Options& options, Session& session) {
  const auto seed_count = split(options.seeds, ',').size();
  const Result<std::vector<int64_t>> seeds =
      parse_numbers("--seeds", options.seeds, seed_count, "numbers such as 0,1,2");
  if (!seeds.ok()) return seeds.status();
  if (options.random < 0) return invalid("--random: is {}, wanted 0 or more", options.random);
  const Result<std::vector<PlanOptions>> allowed = allowed_devices(options.choice);
  if (!allowed.ok()) return allowed.status();

  const PlanOptions& plan = allowed->front();
  Findings findings;
  FLASHCORE_RETURN_IF_ERROR(verify_table(options, *seeds, plan, session, findings));
  if (options.random > 0) {
    FLASHCORE_RETURN_IF_ERROR(verify_random(options, plan, session, findings));
  }
  session.document({{"status", findings.failed ? "check_failed" : "ok"},
                    {"device", to_text(plan.device)},
                    {"table", findings.table},
                    {"random", findings.random}});
  return findings.failed ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace

Command verify_command() {
  auto options = std::make_shared<Options>();
  return {.name = "verify",
          .summary = "Hold kernels to the correctness gates, then to random problems",
          .examples =
              "  flashcore verify\n"
              "  flashcore verify --shapes small,mission --dtypes f32,f16,bf16\n"
              "  flashcore verify --shapes none --random 1000 --random-seed 42\n"
              "  flashcore verify --device cuda --kernel forward_sm90 --json",
          .declare =
              [options](OptionSet& set) {
                set.group("What is verified");
                set.text("--shapes", options->shapes, "Of small, mission, long, wide; or none",
                         "NAMES");
                set.text("--dtypes", options->dtypes, "Types of the shapes, such as f32,f16,bf16",
                         "NAMES");
                set.text("--seeds", options->seeds, "Of the shapes' inputs", "NUMBERS");
                set.number("--random", options->random, "Random problems after the shapes");
                set.number("--random-seed", options->random_seed,
                           "Seed of the first random problem; the others follow");
                options->choice.declare(set);
              },
          .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli

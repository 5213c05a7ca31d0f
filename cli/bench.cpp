// flashcore bench: gate first, then times; a kernel that failed its gate has no time.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>
#include <vector>

#include "bench/cases.hpp"
#include "bench/ceiling.hpp"
#include "bench/gates.hpp"
#include "bench/sampled_gate.hpp"
#include "bench/timing.hpp"
#include "bench/work.hpp"
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
  ProblemOptions problem;
  PlanChoice choice;
  std::string suite = "five";
  bool all_kernels = false;
};

// Past this, the whole fp64 reference takes minutes, and rows are sampled instead.
constexpr double kLargestReference = 5e10;
constexpr double kSampledWork = 4e9;

struct Subject {
  std::string name;
  ProblemInputs inputs;
};

struct Row {
  std::string kernel;
  bench::Verdict verdict;
  std::string error;  // it could not run
  std::optional<bench::Timing> timing;
};

// Judges by the whole reference, or by sampled rows of it.
class Judge {
 public:
  static Result<Judge> make(bench::HostProblem& host, double flop, int threads) {
    const Problem& p = host.problem;
    const bool simple = !p.cu_seqlens_q && !p.bias && !p.mask && !p.alibi_slopes && !p.sinks &&
                        !p.q_scale && !p.k_scale && !p.v_scale && !p.seqlens_q && !p.seqlens_kv &&
                        !p.causal_offsets && p.dropout_p == 0;
    Judge judge;
    if (simple && flop > kLargestReference) {
      Result<bench::SampledReference> sampled =
          bench::SampledReference::compute(host, kSampledWork, threads);
      if (!sampled.ok()) return sampled.status();
      judge.reference_ = std::move(*sampled);
      return judge;
    }
    Result<bench::Reference> whole = bench::compute_reference(host, threads);
    if (!whole.ok()) return whole.status();
    judge.reference_ = std::move(*whole);
    return judge;
  }

  bench::Verdict operator()(const bench::HostProblem& host) const {
    if (const auto* sampled = std::get_if<bench::SampledReference>(&reference_)) {
      return sampled->judge(host);
    }
    return bench::judge(host, std::get<bench::Reference>(reference_));
  }

  std::string what() const {
    const auto* sampled = std::get_if<bench::SampledReference>(&reference_);
    return sampled == nullptr ? "all rows" : fmt::format("{} rows", sampled->rows());
  }

 private:
  std::variant<bench::Reference, bench::SampledReference> reference_;
};

Result<std::vector<Subject>> subjects(const Options& options) {
  std::vector<Subject> out;
  if (options.problem.given()) {
    Result<ProblemInputs> inputs = options.problem.read();
    if (!inputs.ok()) return inputs.status();
    out.push_back({tensor_text(inputs->problem.q), std::move(*inputs)});
    return out;
  }
  const std::optional<std::vector<bench::Case>> cases = bench::suite_cases(options.suite);
  if (!cases) {
    std::string names;
    for (const bench::Suite& suite : bench::suites()) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", suite.name);
    }
    return invalid("--suite: is '{}', wanted one of {}", options.suite, names);
  }
  for (const bench::Case& one : *cases) {
    ProblemInputs inputs;
    inputs.problem = bench::to_problem(one);
    out.push_back({one.name, std::move(inputs)});
  }
  return out;
}

Row measure(bench::HostProblem& host, const Judge& judge, PlanOptions options,
            const std::string& kernel, bench::Timer& timer) {
  Row row{.kernel = kernel, .verdict = {}, .error = {}, .timing = std::nullopt};
  options.kernel = kernel;
  for (auto& [name, tensor] : host.tensors) {
    if (bench::is_output(name)) tensor.poison();
  }
  const Status status = [&]() -> Status {
    const Result<Plan> plan = make_plan(host.problem, options);
    if (!plan.ok()) return plan.status();
    Result<Execution> execution = Execution::prepare(*plan, options.device, host);
    if (!execution.ok()) return execution.status();
    FLASHCORE_RETURN_IF_ERROR(execution->run());
    FLASHCORE_RETURN_IF_ERROR(execution->fetch());
    row.verdict = judge(host);
    if (!row.verdict.passed) return {};
    Result<bench::Timing> timing =
        timer.time([&](Stream stream) { return execution->run(stream); });
    if (!timing.ok()) return timing.status();
    row.timing = *timing;
    return {};
  }();
  if (!status.ok()) row.error = status.message();
  return row;
}

// The ceiling of each type, measured once.
class Ceilings {
 public:
  explicit Ceilings(const PlanOptions& options) : options_(options) {}
  const std::optional<bench::Ceiling>& of(DType dtype) {
    const auto found = known_.find(dtype);
    if (found != known_.end()) return found->second;
    return known_.emplace(dtype, bench::measure_ceiling(options_, dtype)).first->second;
  }
  const std::map<DType, std::optional<bench::Ceiling>>& all() const { return known_; }

 private:
  PlanOptions options_;
  std::map<DType, std::optional<bench::Ceiling>> known_;
};

struct Report {
  Table table{{{"problem"},
               {"kernel"},
               {"gate"},
               {"p50", Align::right},
               {"p90", Align::right},
               {"rate", Align::right},
               {"of ceiling", Align::right}}};
  std::vector<std::string> failures;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();

  void refused(const Subject& subject, const KernelVerdict& kernel) {
    table.row({subject.name, kernel.kernel, "refused", "-", "-", "-", "-"});
    rows.push_back({{"problem", subject.name},
                    {"shape", problem_json(subject.inputs.problem)},
                    {"kernel", kernel.kernel},
                    {"refusal", kernel.refusal},
                    {"time", nullptr}});
  }

  void add(const Session& session, const Subject& subject, const Row& row, double flop,
           const std::string& judged, const std::optional<bench::Ceiling>& ceiling) {
    const bool passed = row.verdict.passed && row.error.empty();
    std::vector<std::string> cells = {
        subject.name,
        row.kernel,
        passed ? session.styled("passed", Tone::good) : session.styled("FAILED", Tone::bad),
        "-",
        "-",
        "-",
        "-"};
    nlohmann::ordered_json item = {{"problem", subject.name},
                                   {"shape", problem_json(subject.inputs.problem)},
                                   {"kernel", row.kernel},
                                   {"gate", verdict_json(row.verdict, subject.inputs.problem)},
                                   {"judged", judged},
                                   {"error", row.error},
                                   {"flop", flop},
                                   {"time", nullptr},
                                   {"percent_of_ceiling", nullptr}};
    if (row.timing) {
      const double rate = flop / row.timing->p50;
      cells[3] = seconds_text(row.timing->p50);
      cells[4] = seconds_text(row.timing->p90);
      cells[5] = rate_text(rate);
      item["time"] = timing_json(*row.timing, flop);
      if (ceiling) {
        const double percent = 100 * rate / ceiling->flop_a_second;
        cells[6] = fmt::format("{:.1f}%", percent);
        item["percent_of_ceiling"] = percent;
      }
    }
    if (!passed) {
      failures.push_back(fmt::format("failed: {} {}: {}", subject.name, row.kernel,
                                     row.error.empty() ? row.verdict.failure : row.error));
    }
    table.row(std::move(cells));
    rows.push_back(std::move(item));
  }
};

Status bench_subject(const Subject& subject, const Options& options, const PlanOptions& plan,
                     bench::Timer& timer, Ceilings& ceilings, Progress& progress,
                     const Session& session, Report& report) {
  const Problem& problem = subject.inputs.problem;
  const Result<std::vector<KernelVerdict>> kernels =
      kernels_under_test(problem, plan, options.all_kernels);
  if (!kernels.ok()) return kernels.status();
  Result<bench::HostProblem> host = subject.inputs.load();
  if (!host.ok()) return host.status();
  const double flop = bench::forward_flop(*host);
  progress.step(subject.name + ", reference");
  const Result<Judge> judge = Judge::make(*host, flop, plan.threads);
  if (!judge.ok()) return judge.status();
  const std::optional<bench::Ceiling>& ceiling = ceilings.of(problem.q.dtype);
  for (const KernelVerdict& kernel : *kernels) {
    if (!kernel.refusal.empty()) {
      report.refused(subject, kernel);
      continue;
    }
    progress.step(subject.name + ", " + kernel.kernel);
    report.add(session, subject, measure(*host, *judge, plan, kernel.kernel, timer), flop,
               judge->what(), ceiling);
  }
  return {};
}

Result<ExitCode> execute(const Options& options, Session& session) {
  const Result<std::vector<Subject>> list = subjects(options);
  if (!list.ok()) return list.status();
  const Result<std::vector<PlanOptions>> allowed = allowed_devices(options.choice);
  if (!allowed.ok()) return allowed.status();
  const PlanOptions& plan = allowed->front();
  Result<std::unique_ptr<bench::Timer>> timer = bench::make_timer(plan.device);
  if (!timer.ok()) return timer.status();
  DeviceInfo device;
  for (const DeviceInfo& info : devices()) {
    if (to_text(info.device) == to_text(plan.device)) device = info;
  }
  if (plan.threads > 0 && device.device.kind == DeviceKind::cpu)
    device.multiprocessors = plan.threads;

  Ceilings ceilings(plan);
  Report report;
  {
    Progress progress(session.shows_progress(), "bench", std::ssize(*list));
    for (const Subject& subject : *list) {
      FLASHCORE_RETURN_IF_ERROR(
          bench_subject(subject, options, plan, **timer, ceilings, progress, session, report));
      progress.advance();
    }
  }
  session.line("device   " + device_text(device));
  session.line("timing   " + (*timer)->protocol());
  nlohmann::ordered_json ceiling_list = nlohmann::ordered_json::array();
  for (const auto& [dtype, ceiling] : ceilings.all()) {
    if (!ceiling) continue;
    session.line(fmt::format("ceiling  {}: {} ({})", to_string(dtype),
                             rate_text(ceiling->flop_a_second), ceiling->what));
    ceiling_list.push_back({{"dtype", to_string(dtype)},
                            {"gflops", ceiling->flop_a_second / 1e9},
                            {"what", ceiling->what}});
  }
  session.line();
  for (const std::string& line : report.table.lines()) session.line(line);
  for (const std::string& failure : report.failures) session.line(failure);
  session.document({{"status", report.failures.empty() ? "ok" : "check_failed"},
                    {"device", device_json(device)},
                    {"protocol", (*timer)->protocol()},
                    {"ceilings", ceiling_list},
                    {"rows", report.rows}});
  return report.failures.empty() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command bench_command() {
  auto options = std::make_shared<Options>();
  return {.name = "bench",
          .summary = "Time kernels that pass their gates",
          .examples =
              "  flashcore bench\n"
              "  flashcore bench --suite sweep --device cuda --json > results.json\n"
              "  flashcore bench --shape 2,8,2048,128 --dtype f32 --threads 1\n"
              "  flashcore bench attention.safetensors --causal",
          .declare =
              [options](OptionSet& set) {
                std::string help = "What is timed when no problem is given:";
                for (const bench::Suite& suite : bench::suites()) {
                  help += fmt::format("\n{}: {}", suite.name, suite.summary);
                }
                set.group("What is timed");
                set.text("--suite", options->suite, help, "NAME");
                set.flag("--all-kernels", options->all_kernels,
                         "Kernels that are never chosen by themselves too (the ladder)");
                options->problem.declare(set);
                options->choice.declare(set);
              },
          .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli

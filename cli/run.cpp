// flashcore run: attention over tensors from files, or of a given shape.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cases/problem_text.hpp"
#include "bench/cases/work.hpp"
#include "bench/device/execution.hpp"
#include "bench/gate/gates.hpp"
#include "bench/io/outputs.hpp"
#include "bench/text/numbers.hpp"
#include "bench/text/progress.hpp"
#include "bench/time/timing.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cli/problem_options.hpp"
#include "cli/report.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

struct Options {
  ProblemOptions problem;
  bench::PlanChoice choice;
  bench::OutputFiles files;
  bool check = false;
  bool no_time = false;
};

struct Outcome {
  std::optional<bench::Verdict> verdict;
  std::optional<bench::Timing> timing;
  std::vector<std::string> written;

  bool failed() const { return verdict && !verdict->passed; }
};

// A first run that takes this long is its own timing: nobody waits for five more.
constexpr double kSlowRun = 2.0;

Result<std::optional<bench::Timing>> compute(const Options& options,
                                             const bench::ChosenPlan& chosen,
                                             bench::HostProblem& host, bench::Progress& progress,
                                             Outcome& outcome) {
  Result<bench::Execution> execution =
      bench::Execution::prepare(chosen.plan, chosen.options.device, host);
  if (!execution.ok()) return execution.status();
  progress.step(fmt::format("kernel {}", chosen.plan.kernel()));
  const auto start = std::chrono::steady_clock::now();
  FLASHCORE_RETURN_IF_ERROR(execution->run());
  FLASHCORE_RETURN_IF_ERROR(execution->fetch());
  const std::chrono::duration<double> first = std::chrono::steady_clock::now() - start;
  if (options.check) {
    progress.step("the fp64 reference");
    const Result<bench::Reference> reference =
        bench::compute_reference(host, chosen.options.threads);
    if (!reference.ok()) return reference.status();
    outcome.verdict = bench::judge(host, *reference);
  }
  if (options.no_time || outcome.failed()) return std::optional<bench::Timing>();
  if (first.count() > kSlowRun) {
    return std::optional(bench::Timing{first.count(), first.count(), 1, 1, {first.count()}});
  }
  progress.step("timing");
  Result<std::unique_ptr<bench::Timer>> timer = bench::make_timer(chosen.options.device);
  if (!timer.ok()) return timer.status();
  const Result<bench::Timing> timing =
      (*timer)->time([&](Stream stream) { return execution->run(stream); });
  if (!timing.ok()) return timing.status();
  return std::optional(*timing);
}

void print_check(Session& session, const bench::Verdict& verdict, const Problem& problem) {
  const bench::GateLimits limits = bench::gate_limits(problem);
  const std::string mark = verdict.passed ? session.styled("passed", bench::Tone::good)
                                          : session.styled("FAILED", bench::Tone::bad);
  session.line(fmt::format("check    {}{} against the fp64 reference", mark,
                           verdict.passed ? "" : ": " + verdict.failure));
  session.line(fmt::format(
      "         max scaled error {:.2e} (limit {:.0e}), relative {:.2e} ({:.0e}){}",
      verdict.max_scaled_error, limits.max_scaled_error, verdict.relative_error,
      limits.relative_error,
      problem.lse ? fmt::format(", LSE {:.2e} ({:.0e})", verdict.lse_error, limits.lse_error)
                  : ""));
}

void print(Session& session, const bench::ChosenPlan& chosen, const Problem& problem,
           const Outcome& outcome, double flop) {
  session.line("problem  " + bench::problem_text(problem));
  session.line("device   " + device_text(chosen.device));
  if (!chosen.note.empty()) session.line("         not " + chosen.note);
  session.line(fmt::format("kernel   {}: {}",
                           session.styled(chosen.plan.kernel(), bench::Tone::strong),
                           chosen.plan.reason()));
  if (outcome.verdict) {
    print_check(session, *outcome.verdict, problem);
  } else {
    session.line("check    none (--check compares with the fp64 reference)");
  }
  if (outcome.timing) {
    const bench::Timing& timing = *outcome.timing;
    session.line(fmt::format("time     {} p50, {} p90, {} sample{}",
                             bench::seconds_text(timing.p50), bench::seconds_text(timing.p90),
                             timing.samples, timing.samples == 1 ? "" : "s"));
    session.line("speed    " +
                 session.styled(bench::rate_text(flop / timing.p50), bench::Tone::strong));
  }
  for (const std::string& line : outcome.written) session.line("wrote    " + line);
}

nlohmann::ordered_json json(const bench::ChosenPlan& chosen, const Problem& problem,
                            const Outcome& outcome, double flop) {
  nlohmann::ordered_json out = {{"status", outcome.failed() ? "check_failed" : "ok"},
                                {"problem", bench::problem_json(problem)},
                                {"device", device_json(chosen.device)},
                                {"kernel", chosen.plan.kernel()},
                                {"reason", chosen.plan.reason()},
                                {"workspace_bytes", chosen.plan.workspace_bytes()},
                                {"flop", flop},
                                {"check", nullptr},
                                {"time", nullptr},
                                {"written", outcome.written}};
  if (outcome.verdict) out["check"] = bench::verdict_json(*outcome.verdict, problem);
  if (outcome.timing) out["time"] = timing_json(*outcome.timing, flop);
  return out;
}

Result<ExitCode> execute(const Options& options, Session& session) {
  const Result<bench::ProblemInputs> inputs = options.problem.read();
  if (!inputs.ok()) return inputs.status();
  const Problem& problem = inputs->problem;
  FLASHCORE_RETURN_IF_ERROR(
      bench::check_outputs(options.files, problem, bench::paths_of(inputs->sources)));
  const Result<bench::ChosenPlan> chosen = bench::choose_plan(problem, options.choice);
  if (!chosen.ok()) return chosen.status();

  Outcome outcome;
  double flop = 0;
  {
    bench::Progress progress(bench::Progress::usual(), "run");
    progress.step("reading");
    Result<bench::HostProblem> host = inputs->load();
    if (!host.ok()) return host.status();
    Result<std::optional<bench::Timing>> timing =
        compute(options, *chosen, *host, progress, outcome);
    if (!timing.ok()) return timing.status();
    outcome.timing = *timing;
    flop = bench::forward_flop(*host);
    FLASHCORE_RETURN_IF_ERROR(
        bench::save_inputs(options.files, *host, options.problem.layout(), outcome.written));
    if (!outcome.failed()) {
      FLASHCORE_RETURN_IF_ERROR(
          bench::write_outputs(options.files, *host, options.problem.layout(), outcome.written));
    }
  }
  print(session, *chosen, problem, outcome, flop);
  if (outcome.failed() && !options.files.out.empty()) {
    session.line("         " + options.files.out + " was not written");
  }
  session.document(json(*chosen, problem, outcome, flop));
  return outcome.failed() ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace

Command run_command() {
  auto options = std::make_shared<Options>();
  return {
      .name = "run",
      .summary = "Compute attention over tensors from files, or of a given shape",
      .examples =
          "  flashcore run attention.safetensors --causal --check\n"
          "  flashcore run attention.safetensors --q query --softcap 30 --out result.safetensors\n"
          "  flashcore run --q q.npy --k k.npy --v v.npy --layout bshd --out o.npy\n"
          "  flashcore run --shape 2,8,512,64 --heads-kv 2 --dtype bf16 --causal --check\n"
          "  flashcore run --shape 1,8,256,64 --with bias,sinks --save-inputs inputs.safetensors",
      .declare =
          [options](OptionSet& set) {
            options->problem.declare(set);
            declare_plan_choice(set, options->choice);
            set.group("Results");
            set.flag(
                "--check", options->check,
                "Compare with the fp64 reference; on a failure nothing is written, exit code 1");
            set.flag("--no-time", options->no_time, "Run once, without timing");
            set.text("--out,-o", options->files.out,
                     "Write O: .safetensors (with LSE) or .npy; an existing file is replaced",
                     "FILE");
            set.text("--lse-out", options->files.lse, "Write LSE: .npy", "FILE");
            set.text("--save-inputs", options->files.save_inputs,
                     "Write the inputs: .safetensors, to compute them again elsewhere", "FILE");
          },
      .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli

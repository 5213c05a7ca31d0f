// flashcore run: attention, or its gradients, over tensors from files or of a given shape.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/problem_text.hpp"
#include "bench/cases/work.hpp"
#include "bench/device/execution.hpp"
#include "bench/gate/gates.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "bench/io/outputs.hpp"
#include "bench/text/numbers.hpp"
#include "bench/text/progress.hpp"
#include "bench/time/timing.hpp"
#include "cli/command.hpp"
#include "cli/gradient_options.hpp"
#include "cli/plan_options.hpp"
#include "cli/problem_options.hpp"
#include "cli/report.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

struct RunOptions {
  ProblemOptions problem;
  GradientOptions gradients;
  bench::PlanChoice choice;
  bench::OutputFiles files;
  bool check = false;
  bool no_time = false;
};

// A pass to run.
struct Work {
  const bench::Pass& pass;
  const bench::ChosenPlan& chosen;
  std::string from;  // backward: the kernel of the forward pass, and the source of d_o
};

struct Outcome {
  std::optional<bench::Verdict> verdict;
  std::optional<bench::Timing> timing;
  std::vector<std::string> written;
  std::vector<std::pair<std::string, double>> largest;  // the requested ones of kLargestOutputs
  double flop = 0;

  bool failed() const { return verdict && !verdict->passed; }
};

// A first run this slow is also the timing: five more would take too long.
constexpr double kSlowRun = 2.0;

Result<bench::Reference> reference_of(bench::HostProblem& host, int threads) {
  return bench::compute_reference(host, threads);
}

// Few rows of a given problem may have a gradient, as in a random one.
Result<bench::GradientReferences> reference_of(bench::HostBackward& host, int threads) {
  return bench::compute_reference(host, threads, true);
}

std::vector<std::pair<std::string, double>> largest_of(const bench::HostProblem& host) {
  std::vector<std::pair<std::string, double>> all;
  for (const LargestValue& one : kLargestOutputs) {
    if (!host.has(one.name)) continue;
    double largest = one.least;
    for (const double value : host.at(one.name).values()) {
      if (value > largest || std::isnan(value)) largest = value;
    }
    all.emplace_back(one.name, largest);
  }
  return all;
}
std::vector<std::pair<std::string, double>> largest_of(const bench::HostBackward& /*host*/) {
  return {};
}

double flop_of(bench::HostProblem& host) { return bench::forward_flop(host); }
double flop_of(bench::HostBackward& host) { return bench::backward_flop(host.forward); }

template <class Host>
Status compute(const RunOptions& options, const bench::ChosenPlan& chosen, Host& host,
               bench::Progress& progress, Outcome& outcome) {
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
    const auto reference = reference_of(host, chosen.options.threads);
    if (!reference.ok()) return reference.status();
    outcome.verdict = bench::judge(host, *reference);
  }
  outcome.flop = flop_of(host);
  outcome.largest = largest_of(host);
  const bool keeps_time = chosen.options.device.kind != DeviceKind::sim;
  if (options.no_time || !keeps_time || outcome.failed()) return {};
  if (first.count() > kSlowRun) {
    outcome.timing = bench::Timing{first.count(), first.count(), 1, 1, {first.count()}};
    return {};
  }
  progress.step("timing");
  Result<std::unique_ptr<bench::Timer>> timer = bench::make_timer(chosen.options.device);
  if (!timer.ok()) return timer.status();
  const Result<bench::Timing> timing =
      (*timer)->time([&](Stream stream) { return execution->run(stream); });
  if (!timing.ok()) return timing.status();
  outcome.timing = *timing;
  return {};
}

// The errors of a verdict, with their limits.
std::string errors_text(const bench::Verdict& verdict, const Work& work) {
  if (work.pass.gradients) {
    return fmt::format(
        "relative error {:.2e} (limit {:.1e}), largest error {:.2e} (naive {:.2e})",
        verdict.relative_error,
        bench::gradient_limits(work.pass.problem, *work.pass.gradients).relative_error,
        verdict.max_error, verdict.naive_max_error);
  }
  const bench::GateLimits limits = bench::gate_limits(work.pass.problem);
  return fmt::format("max scaled error {:.2e} (limit {:.0e}), relative {:.2e} ({:.0e}){}",
                     verdict.max_scaled_error, limits.max_scaled_error, verdict.relative_error,
                     limits.relative_error,
                     work.pass.problem.lse
                         ? fmt::format(", LSE {:.2e} ({:.0e})", verdict.lse_error, limits.lse_error)
                         : "");
}

void print_check(Session& session, const bench::Verdict& verdict, const Work& work) {
  const std::string mark = verdict.passed ? session.styled("passed", bench::Tone::good)
                                          : session.styled("FAILED", bench::Tone::bad);
  session.line(fmt::format("check    {}{} against the fp64 reference", mark,
                           verdict.passed ? "" : ": " + verdict.failure));
  session.line("         " + errors_text(verdict, work));
}

void print(Session& session, const Work& work, const Outcome& outcome) {
  const bench::ChosenPlan& chosen = work.chosen;
  session.line(fmt::format("problem  {}{}", work.pass.gradients ? "backward of " : "",
                           bench::problem_text(work.pass.problem)));
  session.line("device   " + device_text(chosen.device));
  if (!chosen.note.empty()) session.line("         not " + chosen.note);
  if (!work.from.empty()) session.line("forward  " + work.from);
  session.line(fmt::format("kernel   {}: {}",
                           session.styled(chosen.plan.kernel(), bench::Tone::strong),
                           chosen.plan.reason()));
  if (outcome.verdict) {
    print_check(session, *outcome.verdict, work);
  } else {
    session.line("check    none (--check compares with the fp64 reference)");
  }
  if (outcome.timing) {
    const bench::Timing& timing = *outcome.timing;
    session.line(fmt::format("time     {} p50, {} p90, {}", bench::seconds_text(timing.p50),
                             bench::seconds_text(timing.p90),
                             bench::counted(timing.samples, "sample")));
    session.line("speed    " +
                 session.styled(bench::rate_text(outcome.flop / timing.p50), bench::Tone::strong));
  }
  for (const auto& [name, value] : outcome.largest) {
    session.line(fmt::format("{:<8} {:.6g}, the largest", name, value));
  }
  for (const std::string& line : outcome.written) session.line("wrote    " + line);
}

nlohmann::ordered_json json(const Work& work, const Outcome& outcome) {
  const bench::ChosenPlan& chosen = work.chosen;
  nlohmann::ordered_json out = {{"status", outcome.failed() ? "check_failed" : "ok"},
                                {"pass", work.pass.gradients ? "backward" : "forward"},
                                {"problem", bench::problem_json(work.pass.problem)},
                                {"device", device_json(chosen.device)},
                                {"kernel", chosen.plan.kernel()},
                                {"reason", chosen.plan.reason()},
                                {"workspace_bytes", chosen.plan.workspace_bytes()},
                                {"flop", outcome.flop},
                                {"check", nullptr},
                                {"time", nullptr},
                                {"written", outcome.written}};
  for (const auto& [name, value] : outcome.largest) out[name] = value;
  if (work.pass.gradients) {
    out["gradients"] = bench::gradients_json(*work.pass.gradients);
    out["forward"] = work.from;
  }
  if (outcome.verdict) {
    out["check"] =
        work.pass.gradients
            ? bench::verdict_json(*outcome.verdict,
                                  bench::gradient_limits(work.pass.problem, *work.pass.gradients))
            : bench::verdict_json(*outcome.verdict, work.pass.problem);
  }
  if (outcome.timing) out["time"] = timing_json(*outcome.timing, outcome.flop);
  return out;
}

// `load` reads the inputs; for a backward run it also computes the forward pass.
template <class Host>
Result<ExitCode> run_and_report(const RunOptions& options, const Work& work, Session& session,
                                const std::function<Result<Host>(bench::Progress&)>& load) {
  Outcome outcome;
  {
    bench::Progress progress(bench::Progress::usual(), "run");
    progress.step("reading");
    Result<Host> host = load(progress);
    if (!host.ok()) return host.status();
    FLASHCORE_RETURN_IF_ERROR(compute(options, work.chosen, *host, progress, outcome));
    FLASHCORE_RETURN_IF_ERROR(
        bench::save_inputs(options.files, *host, options.problem.layout(), outcome.written));
    if (!outcome.failed()) {
      FLASHCORE_RETURN_IF_ERROR(
          bench::write_outputs(options.files, *host, options.problem.layout(), outcome.written));
    }
  }
  print(session, work, outcome);
  if (outcome.failed() && !options.files.out.empty()) {
    session.line("         " + options.files.out + " was not written");
  }
  session.document(json(work, outcome));
  return outcome.failed() ? ExitCode::check_failed : ExitCode::ok;
}

Result<ExitCode> run_forward(const RunOptions& options, const bench::ProblemInputs& inputs,
                             Session& session) {
  FLASHCORE_RETURN_IF_ERROR(
      bench::check_outputs(options.files, inputs.problem, bench::paths_of(inputs.sources)));
  const bench::Pass pass{inputs.problem};
  const Result<bench::ChosenPlan> chosen = bench::choose_plan(pass, options.choice);
  if (!chosen.ok()) return chosen.status();
  return run_and_report<bench::HostProblem>(options, {pass, *chosen, ""}, session,
                                            [&](bench::Progress&) { return inputs.load(); });
}

// The forward pass of a backward run: by the same kernel, if it has one, or the device's best.
Result<Plan> forward_plan(const Problem& problem, PlanOptions options) {
  if (!options.kernel.empty()) {
    Result<Plan> same = make_plan(problem, options);
    if (same.ok()) return same;
    options.kernel.clear();
  }
  return make_plan(problem, options);
}

Result<ExitCode> run_backward(const RunOptions& given, const bench::ProblemInputs& inputs,
                              Session& session) {
  RunOptions options = given;
  const Problem& problem = inputs.problem;
  for (const LargestValue& one : kLargestOutputs) {
    if (problem.*one.tensor)
      return invalid("{}: is given with --backward, wanted one of them", one.flag);
  }
  const Result<Gradients> gradients =
      options.gradients.describe(inputs, options.problem.layout(), options.problem.draws_d_lse());
  if (!gradients.ok()) return gradients.status();
  Result<std::vector<std::string>> names = options.gradients.names(*gradients);
  if (!names.ok()) return names.status();
  options.files.gradients = std::move(*names);
  FLASHCORE_RETURN_IF_ERROR(
      bench::check_outputs(options.files, *gradients, bench::paths_of(inputs.sources)));
  const bench::Pass pass{problem, *gradients};
  const Result<bench::ChosenPlan> chosen = bench::choose_plan(pass, options.choice);
  if (!chosen.ok()) return chosen.status();
  const Result<Plan> forward = forward_plan(problem, chosen->options);
  if (!forward.ok()) return forward.status();
  const std::string from =
      fmt::format("{}; d_o {}", forward->kernel(),
                  inputs.sources.contains("d_o") ? "from a file" : "drawn from N(0, 1)");
  return run_and_report<bench::HostBackward>(
      options, {pass, *chosen, from}, session,
      [&](bench::Progress& progress) -> Result<bench::HostBackward> {
        Result<bench::HostBackward> host = inputs.load(*gradients);
        if (!host.ok()) return host.status();
        progress.step(fmt::format("the forward pass, kernel {}", forward->kernel()));
        Result<bench::Execution> execution =
            bench::Execution::prepare(*forward, chosen->options.device, host->forward);
        if (!execution.ok()) return execution.status();
        FLASHCORE_RETURN_IF_ERROR(execution->run());
        FLASHCORE_RETURN_IF_ERROR(execution->fetch());
        return host;
      });
}

Result<ExitCode> execute_run(const RunOptions& options, Session& session) {
  FLASHCORE_RETURN_IF_ERROR(options.gradients.check(options.choice));
  const Result<bench::ProblemInputs> inputs = options.problem.read(options.gradients.sources());
  if (!inputs.ok()) return inputs.status();
  return options.gradients.backward() ? run_backward(options, *inputs, session)
                                      : run_forward(options, *inputs, session);
}

}  // namespace

Command run_command() {
  auto options = std::make_shared<RunOptions>();
  return {
      .name = "run",
      .summary = "Compute attention, or its gradients, over tensors from files or of a given shape",
      .examples =
          "  flashcore run attention.safetensors --causal --check\n"
          "  flashcore run attention.safetensors --q query --softcap 30 --out result.safetensors\n"
          "  flashcore run --q q.npy --k k.npy --v v.npy --layout bshd --out o.npy\n"
          "  flashcore run --shape 2,8,512,64 --heads-kv 2 --dtype bf16 --causal --check\n"
          "  flashcore run --shape 2,8,512,64 --out-dtype f8e4m3 --with o_scale --amax --check\n"
          "  flashcore run --shape 1,8,256,64 --with bias,sinks --save-inputs inputs.safetensors\n"
          "  flashcore run attention.safetensors --causal --backward --check --out "
          "gradients.safetensors",
      .declare =
          [options](OptionSet& set) {
            options->problem.declare(set);
            options->gradients.declare(set, options->choice);
            declare_plan_choice(set, options->choice);
            set.group("Results");
            set.flag(
                "--check", options->check,
                "Compare with the fp64 reference; on a failure nothing is written, exit code 1");
            set.flag("--no-time", options->no_time, "Run once, without timing");
            set.text("--out,-o", options->files.out,
                     "Write O (with LSE) or gradients: .safetensors, or .npy for one array; an "
                     "existing file "
                     "is replaced",
                     "FILE");
            set.text("--lse-out", options->files.lse, "Write LSE: .npy", "FILE");
            set.text("--save-inputs", options->files.save_inputs,
                     "Write the inputs: .safetensors, to compute them again elsewhere", "FILE");
          },
      .execute = [options](Session& session) { return execute_run(*options, session); }};
}

}  // namespace flashcore::cli

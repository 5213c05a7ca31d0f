// flashcore bench: which cases, and how; bench/run does the rest.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/report/tables.hpp"
#include "bench/run/backward_workload.hpp"
#include "bench/run/case_evidence.hpp"
#include "bench/run/run.hpp"
#include "bench/run/watch.hpp"
#include "bench/text/numbers.hpp"
#include "cli/command.hpp"
#include "cli/gradient_options.hpp"
#include "cli/plan_options.hpp"
#include "cli/problem_options.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStandard = "five,sweep,small,decode,features";

struct Options {
  bench::RunOptions bench;
  ProblemOptions problem;
  GradientOptions gradients;
  bench::PlanChoice choice;
  std::string suites = "five";
  std::string cases;  // a file
  bool quick = false;
};

Status add_suite(const std::string& name, bool quick, std::vector<bench::Subject>& subjects) {
  const std::optional<std::vector<bench::Case>> cases = bench::suite_cases(name, quick);
  if (quick && !cases && bench::suite_cases(name)) {
    return invalid("--quick: the suite is '{}', wanted one of decode, paged, ragged, speculative",
                   name);
  }
  if (!cases) {
    std::string names;
    for (const bench::Suite& suite : bench::suites()) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", suite.name);
    }
    return invalid("--suite: is '{}', wanted one of {}, standard", name, names);
  }
  for (const bench::Case& one : *cases) {
    subjects.push_back({.suite = name, .one = one, .given = std::nullopt});
  }
  return {};
}

// The problem that was given, with the gradients that are asked for.
Result<bench::Subject> given_subject(const Options& options) {
  Result<bench::ProblemInputs> inputs = options.problem.read(options.gradients.sources());
  if (!inputs.ok()) return inputs.status();
  bench::Subject subject;
  subject.suite = "given";
  if (options.gradients.backward()) {
    const Result<Gradients> gradients = options.gradients.describe(
        *inputs, options.problem.layout(), options.problem.draws_d_lse());
    if (!gradients.ok()) return gradients.status();
    subject.gradients = *gradients;
  }
  subject.given = std::move(*inputs);
  return subject;
}

Result<std::vector<bench::Subject>> subjects_of(const Options& options) {
  std::vector<bench::Subject> subjects;
  if (options.problem.given()) {
    Result<bench::Subject> subject = given_subject(options);
    if (!subject.ok()) return subject.status();
    subjects.push_back(std::move(*subject));
    return subjects;
  }
  FLASHCORE_RETURN_IF_ERROR(options.gradients.check_for_suites());
  if (!options.cases.empty()) {
    const Result<std::vector<bench::FileCase>> cases = bench::read_cases(options.cases);
    if (!cases.ok()) return cases.status();
    for (const bench::FileCase& one : *cases) {
      subjects.push_back({.suite = one.suite, .one = one.one, .given = std::nullopt});
    }
    return subjects;
  }
  const std::string suites = options.suites == "standard" ? kStandard : options.suites;
  for (const std::string& name : bench::split(suites, ',')) {
    FLASHCORE_RETURN_IF_ERROR(add_suite(name, options.quick, subjects));
  }
  return subjects;
}

// Without a watcher: a debugger or a profiler wants the work in the process it started.
class Quiet final : public bench::RunListener {
 public:
  explicit Quiet(bool verbose) : verbose_(verbose) {}
  void begins(const bench::Step& step) override {
    if (verbose_) bench::write_text(stderr, "begins " + step.what + "\n");
  }
  void finished(const Json*) override {}

 private:
  bool verbose_;
};

void print(const Json& evidence, const std::string& protocol, Session& session) {
  if (evidence.contains("pass")) session.line("pass     " + evidence["pass"].get<std::string>());
  session.line("device   " + evidence["device"]["name"].get<std::string>());
  session.line("timing   " + protocol + ": " + evidence["protocols"][protocol].get<std::string>());
  for (const std::string& line : bench::ceiling_lines(evidence["ceilings"])) session.line(line);
  session.line();
  session.table(bench::run_table(evidence, protocol));
  for (const std::string& failure : bench::run_failures(evidence)) session.line(failure);
  for (const Json& note : evidence["notes"]) {
    session.line("note: " + bench::printable(note.get<std::string>()));
  }
}

// The tables or, with --json, the evidence.
ExitCode report(const Json& evidence, const std::string& out, Session& session) {
  const Json& protocols = evidence["protocols"];
  print(evidence, protocols.empty() ? "" : protocols.begin().key(), session);
  if (!out.empty()) session.line("evidence " + out);
  const bool failed =
      std::any_of(evidence["cases"].begin(), evidence["cases"].end(), bench::has_failure);
  Json document = {{"status", failed ? "check_failed" : "ok"}};
  document.update(evidence);
  session.document(document);
  return failed ? ExitCode::check_failed : ExitCode::ok;
}

Result<ExitCode> run_here(const bench::RunOptions& options,
                          const std::vector<bench::Subject>& subjects, const PlanOptions& plan,
                          Session& session) {
  Quiet listener(options.verbose);
  bench::RunOrder order;
  order.out = options.out;
  Json evidence;
  FLASHCORE_RETURN_IF_ERROR(bench::run_cases(options, subjects, plan, order, listener, evidence));
  return report(evidence, options.out, session);
}

Result<ExitCode> run_watched(const bench::RunOptions& options,
                             const std::vector<bench::Subject>& subjects, const PlanOptions& plan,
                             Session& session) {
  const Result<bench::Watched> run = bench::watch_cases(options, subjects, plan);
  if (!run.ok()) return run.status();
  if (!run->interrupted) return report(run->evidence, options.out, session);
  session.line("interrupted" +
               (options.out.empty() ? "" : "; what was measured is in " + options.out));
  return ExitCode::interrupted;
}

Result<ExitCode> execute(const Options& all, Session& session) {
  FLASHCORE_RETURN_IF_ERROR(all.gradients.check(all.choice));
  bench::RunOptions options = all.bench;
  options.backward = all.gradients.backward();
  Result<std::vector<bench::Subject>> subjects = subjects_of(all);
  if (!subjects.ok()) return subjects.status();
  for (bench::Subject& subject : *subjects) {
    if (!options.backward && subject.suite == "backward") {
      return invalid("--suite: is 'backward', wanted it with --backward");
    }
    if (options.backward && !subject.gradients) {
      subject.gradients = bench::plain_gradients(subject.problem());
    }
  }
  if (options.resume && options.out.empty()) {
    return invalid("--resume: there is no --out FILE, wanted the file to continue");
  }
  const Result<std::vector<PlanOptions>> allowed = bench::allowed_devices(all.choice);
  if (!allowed.ok()) return allowed.status();
  const PlanOptions& plan = allowed->front();
  if (!options.worker.empty()) {
    FLASHCORE_RETURN_IF_ERROR(bench::work_for_watcher(options, *subjects, plan));
    return ExitCode::ok;
  }
  if (options.deadline > 0) return run_watched(options, *subjects, plan, session);
  return run_here(options, *subjects, plan, session);
}

void declare(Options& all, OptionSet& set) {
  bench::RunOptions& options = all.bench;
  std::string help = fmt::format(
      "What is timed when no problem is given, separated by commas (default {}):", all.suites);
  for (const bench::Suite& suite : bench::suites()) {
    help += fmt::format("\n{}: {}", suite.name, suite.summary);
  }
  help += fmt::format("\nstandard: {}", kStandard);
  set.group("What is timed");
  set.text("--suite", all.suites, help, "NAMES");
  set.flag("--quick", all.quick,
           "Of decode, paged, ragged and speculative: an eighth of the entries and of the keys");
  set.text("--cases", all.cases, "Cases from a JSON file instead (docs/cli.md)", "FILE");
  set.flag("--all-kernels", options.all_kernels,
           "Also time all kernels that are never chosen automatically (the ladder)");
  set.text("--also", options.also, "Also time these kernels, separated by commas", "NAMES");
  set.group("Peers and method");
  set.text("--peers", options.peers,
           "Other implementations in the same run: none, auto (tools/peers_torch.py, where python3 "
           "has PyTorch), or the path of such a helper",
           "PATH");
  set.text(
      "--backends", options.backends,
      "Which peers: auto, or names such as flash,cudnn,efficient,math,flex,fa2,fa3,fa4,flashinfer,"
      "xformers,cudnn_direct,openblas,onednn; with --backward also fa2_deterministic, "
      "fa4_deterministic",
      "NAMES");
  set.text(
      "--protocol", options.protocols,
      "auto (all of them on some suites, docs/measurement.md), all, or names such as sustained",
      "NAMES");
  set.number("--seconds", options.seconds, "Begin no case after this many seconds; 0: no limit");
  set.number(
      "--deadline", options.deadline,
      "Give up a point after this many seconds on a GPU, or ten times as many elsewhere; 0: never, "
      "and do everything in this process");
  set.text("--out", options.out, "Write evidence, after every case", "FILE");
  set.flag("--resume", options.resume,
           "Continue with what --out already has of this build and device");
  set.flag("--verbose", options.verbose, "Say on stderr what begins, and when");
  set.hidden("--worker", options.worker);
  set.hidden("--worker-program", options.worker_program);
  all.problem.declare(set);
  all.gradients.declare(set, all.choice);
  declare_plan_choice(set, all.choice);
}

}  // namespace

Command bench_command() {
  auto options = std::make_shared<Options>();
  return {
      .name = "bench",
      .summary = "Time kernels that pass their gates, beside peers and ceilings",
      .examples =
          "  flashcore bench\n"
          "  flashcore bench --suite standard --peers auto --out docs/evidence/gpu.json\n"
          "  flashcore bench --suite sweep --device cuda --also forward_sm90_throughput --json\n"
          "  flashcore bench --suite decode,paged,ragged,speculative --quick\n"
          "  flashcore bench --shape 2,8,2048,128 --dtype f32 --threads 1\n"
          "  flashcore bench --backward --suite sweep --peers auto --out backward.json\n"
          "  flashcore bench attention.safetensors --causal",
      .declare = [options](OptionSet& set) { declare(*options, set); },
      .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli

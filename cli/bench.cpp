// flashcore bench: chooses the cases and options; bench/run does the rest.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/report/tables.hpp"
#include "bench/run/case_evidence.hpp"
#include "bench/run/run.hpp"
#include "bench/run/watch.hpp"
#include "bench/text/numbers.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cli/subjects.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  bench::RunOptions bench;
  SubjectOptions subjects;
  bench::PlanChoice choice;
};

// Runs without a watcher: debuggers and profilers want the work in the process that they started.
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

// Prints the tables or, with --json, the evidence.
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

Result<ExitCode> execute_bench(const BenchOptions& all, Session& session) {
  FLASHCORE_RETURN_IF_ERROR(all.subjects.gradients.check(all.choice));
  bench::RunOptions options = all.bench;
  options.backward = all.subjects.gradients.backward();
  const Result<std::vector<bench::Subject>> subjects = subjects_of(all.subjects);
  if (!subjects.ok()) return subjects.status();
  if (!options.backward) {
    for (const bench::Subject& subject : *subjects) {
      if (!subject.gradients) continue;
      return invalid("--cases: '{}' is a backward pass, wanted it with --backward", subject.name());
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

void declare(BenchOptions& all, OptionSet& set) {
  bench::RunOptions& options = all.bench;
  all.subjects.declare(set);
  set.flag("--all-kernels", options.all_kernels,
           "Also time all kernels that are never chosen automatically (the ladder)");
  set.text("--also", options.also, "Also time these kernels, separated by commas", "NAMES");
  set.text("--only", options.only, "Time these kernels and no others, separated by commas",
           "NAMES");
  set.group("Peers and method");
  set.text("--peers", options.peers,
           "Other implementations in the same run: none, auto (tools/peers_torch.py, where python3 "
           "has PyTorch), or the path of such a helper",
           "PATH");
  set.text(
      "--backends", options.backends,
      "Which peers: auto, or names such as flash,cudnn,efficient,math,flex,fa2,fa3,fa4,flashinfer,"
      "xformers,cudnn_direct,openblas,openblas_by_operator,onednn; with --backward also "
      "fa2_deterministic, "
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
  all.subjects.problem.declare(set);
  all.subjects.gradients.declare(set, all.choice);
  declare_plan_choice(set, all.choice);
}

}  // namespace

Command bench_command() {
  auto options = std::make_shared<BenchOptions>();
  return {
      .name = "bench",
      .summary = "Time kernels that pass their gates, together with peers and ceilings",
      .examples =
          "  flashcore bench\n"
          "  flashcore bench --suite standard --peers auto --out docs/evidence/gpu.json\n"
          "  flashcore bench --suite sweep --device cuda --also forward_sm90_throughput --json\n"
          "  flashcore bench --suite decode,paged,ragged,speculative --quick\n"
          "  flashcore bench --shape 2,8,2048,128 --dtype f32 --threads 1\n"
          "  flashcore bench --backward --suite sweep --peers auto --out backward.json\n"
          "  flashcore bench attention.safetensors --causal",
      .declare = [options](OptionSet& set) { declare(*options, set); },
      .execute = [options](Session& session) { return execute_bench(*options, session); }};
}

}  // namespace flashcore::cli

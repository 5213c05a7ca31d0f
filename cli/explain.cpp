// flashcore explain: every kernel's verdict on a problem, without computing anything.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cases/problem_text.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/text/table.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cli/problem_options.hpp"

namespace flashcore::cli {
namespace {

struct Options {
  ProblemOptions problem;
  bench::PlanChoice choice;
  bool backward = false;
};

// What a caller gets who plans the problem, forward or backward.
struct Passes {
  Problem problem;
  std::optional<Gradients> gradients;

  Result<std::vector<KernelVerdict>> verdicts(const PlanOptions& options) const {
    return gradients ? explain_backward(problem, *gradients, options) : explain(problem, options);
  }
  Result<Plan> plan(const PlanOptions& options) const {
    return gradients ? make_backward_plan(problem, *gradients, options)
                     : make_plan(problem, options);
  }
};

Passes passes_of(const Problem& problem, bool backward) {
  if (!backward) return {problem, std::nullopt};
  const Problem with_lse = bench::with_lse(problem);
  return {with_lse, bench::gradients_of(with_lse, false)};
}

// `runs`: the kernel that computes the problem on this device; empty when none does.
bench::Cell verdict_cell(const KernelVerdict& verdict, std::string_view runs, bool chosen) {
  if (!verdict.refusal.empty()) return {"no", bench::Tone::bad, ": " + verdict.refusal};
  std::string text;
  if (chosen) {
    text = ": runs";
  } else if (!verdict.automatic) {
    text = ": only when asked for by name";
  } else if (!verdict.declines.empty()) {
    text = fmt::format(": would run, but leaves it to {}: {}", runs, verdict.declines);
  } else {
    text = ": would run, but a better one does";
  }
  if (!verdict.note.empty()) text += "; " + verdict.note;
  return {"yes", bench::Tone::good, text};
}

Result<ExitCode> execute(const Options& options, Session& session) {
  const Result<bench::ProblemInputs> inputs = options.problem.read();
  if (!inputs.ok()) return inputs.status();
  const Passes pass = passes_of(inputs->problem, options.backward);
  const Problem& problem = pass.problem;
  const Result<std::vector<PlanOptions>> allowed = bench::allowed_devices(options.choice);
  if (!allowed.ok()) return allowed.status();

  session.line((options.backward ? "backward of  " : "problem  ") + bench::problem_text(problem));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string chosen_device;
  Status refusal;
  for (const PlanOptions& device : *allowed) {
    const Result<std::vector<KernelVerdict>> verdicts = pass.verdicts(device);
    if (!verdicts.ok()) return verdicts.status();
    const Result<Plan> plan = pass.plan(device);
    const bool runs_here = plan.ok() && chosen_device.empty();
    if (runs_here) chosen_device = bench::to_text(device.device);
    if (!plan.ok()) refusal = plan.status();
    const std::string_view runs = plan.ok() ? plan->kernel() : "";
    bench::Table table({{"kernel"}, {bench::to_text(device.device)}});
    for (const KernelVerdict& verdict : *verdicts) {
      const bool chosen = runs_here && verdict.kernel == runs;
      table.row({verdict.kernel, verdict_cell(verdict, runs, chosen)});
      list.push_back({{"device", bench::to_text(device.device)},
                      {"kernel", verdict.kernel},
                      {"refusal", verdict.refusal},
                      {"declines", verdict.declines},
                      {"note", verdict.note},
                      {"automatic", verdict.automatic},
                      {"chosen", chosen}});
    }
    session.line();
    session.table(table);
  }
  session.document({{"status", chosen_device.empty() ? "unsupported" : "ok"},
                    {"pass", options.backward ? "backward" : "forward"},
                    {"problem", bench::problem_json(problem)},
                    {"kernels", list}});
  if (!chosen_device.empty()) return ExitCode::ok;
  session.line("\nnothing runs: " + refusal.message());
  return exit_code(refusal.code());
}

}  // namespace

Command explain_command() {
  auto options = std::make_shared<Options>();
  return {.name = "explain",
          .summary = "Say of every kernel whether it computes a problem, and if not, why",
          .examples =
              "  flashcore explain --shape 2,8,512,64 --causal\n"
              "  flashcore explain attention.safetensors --softcap 30\n"
              "  flashcore explain --shape 2,8,512,64 --backward\n"
              "  flashcore explain --shape 1,32,4096,128 --heads-kv 8 --device cuda --json",
          .declare =
              [options](OptionSet& set) {
                options->problem.declare(set);
                set.flag("--backward", options->backward, "Of the backward pass: gradients");
                declare_plan_choice(set, options->choice);
              },
          .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli

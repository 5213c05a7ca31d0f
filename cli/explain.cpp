// flashcore explain: every kernel's verdict on a problem, without computing anything.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/problem_text.hpp"
#include "bench/device/known_gpus.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/text/table.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cli/problem_options.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

struct ExplainOptions {
  ProblemOptions problem;
  bench::PlanChoice choice;
  bool backward = false;
};

bench::Pass pass_of(const Problem& problem, bool backward) {
  if (!backward) return {problem};
  const Problem with_lse = bench::with_lse(problem);
  return {with_lse, bench::gradients_of(with_lse, false)};
}

// `runs`: the kernel that computes the problem on this device; empty if none does.
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

// The answer for one device.
struct Said {
  std::string device;   // "cuda:0", or the name of a GPU that is not in this machine
  std::string heading;  // its column's heading
  std::vector<KernelVerdict> verdicts;
  std::string runs;  // the kernel that computes the problem there; empty: none
  Status refusal;    // why not
};

Result<Said> said_here(const bench::Pass& pass, const PlanOptions& options) {
  const Result<std::vector<KernelVerdict>> verdicts = pass.explain(options);
  if (!verdicts.ok()) return verdicts.status();
  const Result<Plan> plan = pass.plan(options);
  const std::string name = bench::to_text(options.device);
  return Said{name, name, *verdicts, std::string(plan.ok() ? plan->kernel() : ""), plan.status()};
}

Result<Said> said_of(const DeviceInfo& gpu, const bench::Pass& pass, const PlanOptions& options) {
  const Result<ExplainedFor> said = pass.gradients
                                        ? explain_for(gpu, pass.problem, *pass.gradients, options)
                                        : explain_for(gpu, pass.problem, options);
  if (!said.ok()) return said.status();
  const std::string heading =
      fmt::format("{} of compute capability {}.{} with {} SMs, not here", gpu.name,
                  gpu.compute_capability / 10, gpu.compute_capability % 10, gpu.multiprocessors);
  return Said{gpu.name, heading, said->verdicts, said->kernel,
              Status(StatusCode::unsupported, said->reason)};
}

// Parses --device as a GPU that need not be here: a name, or sm_90, or sm_90:114 with a number of SMs.
Result<std::optional<DeviceInfo>> named_gpu(const std::string& name) {
  if (const bench::KnownGpu* const gpu = bench::find_gpu(name)) {
    return std::optional(bench::device_info(*gpu));
  }
  if (name == "auto" || name == "cpu" || name.starts_with("cuda") || name.starts_with("sim")) {
    return std::optional<DeviceInfo>();
  }
  constexpr std::string_view kPrefix = "sm_";
  const auto number = [](std::string_view text) {
    int32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? value : 0;
  };
  const std::string_view all =
      name.starts_with(kPrefix) ? std::string_view(name).substr(kPrefix.size()) : "";
  const size_t colon = std::min(all.find(':'), all.size());
  const int32_t capability = number(all.substr(0, colon));
  const bool counts = colon < all.size();
  const int32_t multiprocessors = counts ? number(all.substr(colon + 1)) : 0;
  const bench::KnownGpu* const gpu = bench::gpu_of(capability);
  constexpr int32_t kMostMultiprocessors = 10000;
  if (gpu == nullptr || multiprocessors > kMostMultiprocessors || (counts && multiprocessors < 1)) {
    return invalid(
        "--device: is '{}', wanted auto, cpu, cuda, cuda:N, sim, sim:N, or a GPU that need not be "
        "here: {}, the same with a number of SMs (sm_90:114), {}",
        name, bench::known_capabilities(), bench::known_gpu_names());
  }
  DeviceInfo info = bench::device_info(*gpu);
  if (counts) info.name = "GPU";
  if (counts) info.multiprocessors = multiprocessors;
  return std::optional(info);
}

Result<std::vector<Said>> all_said(const ExplainOptions& options, const bench::Pass& pass) {
  bench::PlanChoice choice = options.choice;
  const Result<std::optional<DeviceInfo>> gpu = named_gpu(choice.device);
  if (!gpu.ok()) return gpu.status();
  if (*gpu) choice.device = "cpu";  // its other options are the same
  const Result<std::vector<PlanOptions>> allowed = bench::allowed_devices(choice);
  if (!allowed.ok()) return allowed.status();
  std::vector<Said> all;
  for (const PlanOptions& device : *allowed) {
    Result<Said> said = *gpu ? said_of(**gpu, pass, device) : said_here(pass, device);
    if (!said.ok()) return said.status();
    all.push_back(std::move(*said));
  }
  return all;
}

Result<ExitCode> execute_explain(const ExplainOptions& options, Session& session) {
  const Result<bench::ProblemInputs> inputs = options.problem.read();
  if (!inputs.ok()) return inputs.status();
  const bench::Pass pass = pass_of(inputs->problem, options.backward);
  const Problem& problem = pass.problem;
  const Result<std::vector<Said>> all = all_said(options, pass);
  if (!all.ok()) return all.status();

  session.line((options.backward ? "backward of  " : "problem  ") + bench::problem_text(problem));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  bool found = false;
  for (const Said& said : *all) {
    const bool runs_here = !found && !said.runs.empty();
    found = found || runs_here;
    bench::Table table({{"kernel"}, {said.heading}});
    for (const KernelVerdict& verdict : said.verdicts) {
      const bool chosen = runs_here && verdict.kernel == said.runs;
      table.row({verdict.kernel, verdict_cell(verdict, said.runs, chosen)});
      list.push_back({{"device", said.device},
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
  session.document({{"status", found ? "ok" : "unsupported"},
                    {"pass", options.backward ? "backward" : "forward"},
                    {"problem", bench::problem_json(problem)},
                    {"kernels", list}});
  if (found) return ExitCode::ok;
  session.line("\nnothing runs: " + all->back().refusal.message());
  return exit_code(all->back().refusal.code());
}

}  // namespace

Command explain_command() {
  auto options = std::make_shared<ExplainOptions>();
  return {.name = "explain",
          .summary = "Say for every kernel whether it computes a problem, and if not, why",
          .examples =
              "  flashcore explain --shape 2,8,512,64 --causal\n"
              "  flashcore explain attention.safetensors --softcap 30\n"
              "  flashcore explain --shape 2,8,512,64 --backward\n"
              "  flashcore explain --shape 1,32,4096,128 --heads-kv 8 --device cuda --json\n"
              "  flashcore explain --shape 2,8,512,64 --device H100\n"
              "  flashcore explain --shape 2,8,512,64 --device sm_90:114",
          .declare =
              [options](OptionSet& set) {
                options->problem.declare(set);
                set.flag("--backward", options->backward, "The backward pass: gradients");
                declare_plan_choice(set, options->choice,
                                    ", or a GPU that is not here: sm_90, sm_90:114 (SMs), " +
                                        bench::known_gpu_names());
              },
          .execute = [options](Session& session) { return execute_explain(*options, session); }};
}

}  // namespace flashcore::cli

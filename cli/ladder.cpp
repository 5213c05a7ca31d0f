// flashcore ladder: chooses rungs and a device; bench/ladder does the rest.
#include "bench/ladder/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/device/plan_choice.hpp"
#include "bench/ladder/ladder_evidence.hpp"
#include "bench/report/tables.hpp"
#include "bench/text/numbers.hpp"
#include "cli/command.hpp"
#include "cuda/ladder/rung.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

struct LadderOptions {
  std::string rungs = "all";
  std::string device = "cuda:0";
  std::string out = "ladder.json";  // or "none"
  std::string peers = "auto";
  std::string seeds = "0,1,2";
  int64_t tails = 60;
  bool list = false;
  bool quick = false;
  bool no_sanitizers = false;
  bool only_run = false;
};

// Returns whether a GPU has the instructions of a rung. 0: any GPU.
bool runs_on(const cuda::ladder::Rung& rung, int32_t capability) {
  return capability == 0 ||
         (capability >= rung.min_compute_capability &&
          (rung.max_compute_capability == 0 || capability <= rung.max_compute_capability));
}

// The named rungs, in climbing order; "all" stands for all that the GPU runs. A rung that it does
// not run is left out, with a message.
Result<std::vector<bench::Rung>> chosen_rungs(const std::string& names, int32_t capability) {
  const auto all = cuda::ladder::rungs();
  std::vector<std::string> wanted = bench::split(names, ',');
  if (names == "all") {
    wanted.clear();
    for (const cuda::ladder::Rung& rung : all) wanted.emplace_back(rung.name);
  }
  std::vector<bench::Rung> chosen;
  for (const std::string& name : wanted) {
    const auto rung = std::find_if(all.begin(), all.end(),
                                   [&](const cuda::ladder::Rung& one) { return one.name == name; });
    if (rung == all.end()) {
      return invalid("--rungs: is '{}', wanted 'all' or names that --list shows", name);
    }
    if (!runs_on(*rung, capability)) {
      bench::write_text(stderr, "left out: " + name + ": this GPU lacks its instructions\n");
      continue;
    }
    chosen.push_back(
        {.name = name,
         .adds = rung->adds,
         .prediction = rung->prediction,
         .input = rung->input == cuda::ladder::RungInput::fp16 ? DType::f16 : DType::f8e4m3,
         .min_compute_capability = rung->min_compute_capability});
  }
  return chosen;
}

void list_rungs(const std::vector<bench::Rung>& rungs, Session& session) {
  bench::Table table({{"rung"}, {"input"}, {"from"}, {"adds"}});
  Json rows = Json::array();
  for (const bench::Rung& rung : rungs) {
    table.row({rung.name, std::string(to_string(rung.input)),
               fmt::format("sm_{}", rung.min_compute_capability), rung.adds});
    rows.push_back({{"name", rung.name},
                    {"input", to_string(rung.input)},
                    {"min_compute_capability", rung.min_compute_capability},
                    {"adds", rung.adds},
                    {"prediction", rung.prediction}});
  }
  session.table(table);
  session.document({{"rungs", rows}});
}

void print(const Json& evidence, const bench::LadderOptions& ladder, Session& session) {
  session.table(bench::ladder_gates(evidence));
  for (const std::string& failure : bench::ladder_failures(evidence)) session.line(failure);
  if (ladder.times) {
    session.line();
    session.line("us per call, " + evidence["protocols"].begin().key() +
                 " (p50); ratios are on the first shape; registers and shared memory are the "
                 "maximum over shapes");
    session.table(bench::ladder_times(evidence));
  }
  for (const Json& note : evidence["notes"]) session.line("note: " + note.get<std::string>());
  if (!ladder.out.empty()) session.line("evidence: " + ladder.out);
}

Result<ExitCode> execute_ladder(const LadderOptions& options, Session& session) {
  Result<std::vector<bench::Rung>> rungs = chosen_rungs(options.rungs, 0);
  if (!rungs.ok()) return rungs.status();
  if (options.list) {
    list_rungs(*rungs, session);
    return ExitCode::ok;
  }
  if (options.tails < 0) return invalid("--tails: is {}, wanted 0 or more", options.tails);
  const Result<std::vector<int64_t>> seeds = bench::parse_numbers(
      "--seeds", options.seeds, bench::split(options.seeds, ',').size(), "numbers such as 0,1,2");
  if (!seeds.ok()) return seeds.status();
  const Result<PlanOptions> plan = bench::gpu_plan(options.device);
  if (!plan.ok()) return plan.status();
  const std::string device = bench::to_text(plan->device);
  const int32_t capability = bench::info_of(plan->device).compute_capability;
  if (capability == 0) return unsupported("ladder: there is no usable GPU {}", device);
  rungs = chosen_rungs(options.rungs, capability);
  if (options.only_run) {
    return bench::run_rungs_marked(*rungs, *plan).ok() ? ExitCode::ok : ExitCode::check_failed;
  }
  bench::LadderOptions ladder;
  ladder.seeds = *seeds;
  ladder.tails = options.tails;
  ladder.peers = options.peers;
  ladder.out = options.out == "none" ? "" : options.out;
  ladder.all_rungs = options.rungs == "all";
  const bool simulated = plan->device.kind == DeviceKind::sim;
  if (simulated) {  // no clock, and not evidence
    ladder.times = false;
    ladder.out.clear();
  }
  if (options.quick) {
    std::erase_if(ladder.gated, [](const bench::Case& one) { return one.name != "small"; });
    ladder.times = false;
  }
  if (!options.no_sanitizers && !simulated) {
    std::string names;
    for (const bench::Rung& rung : *rungs) names += (names.empty() ? "" : ",") + rung.name;
    ladder.sanitized = {"ladder", "--only-run", "--rungs", names, "--device", device};
  }
  const auto start = std::chrono::steady_clock::now();
  const Result<Json> evidence =
      bench::climb_ladder(*rungs, *plan, ladder, [&](const std::string& what) {
        const std::chrono::duration<double> past = std::chrono::steady_clock::now() - start;
        bench::write_text(stderr, fmt::format("{:6.1f} s  {}\n", past.count(), what));
      });
  if (!evidence.ok()) return evidence.status();
  print(*evidence, ladder, session);
  session.document(*evidence);
  return bench::ladder_passed(*evidence) ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command ladder_command() {
  auto options = std::make_shared<LadderOptions>();
  return {
      .name = "ladder",
      .summary = "Gate and time every rung of the ladder, and write the evidence",
      .examples =
          "  flashcore ladder --list\n"
          "  flashcore ladder --out docs/evidence/ladder.json\n"
          "  flashcore ladder --rungs 04_wmma_pv,05_warp_softmax --quick --out none",
      .declare =
          [options](OptionSet& set) {
            set.group("What is climbed");
            set.text("--rungs", options->rungs, "Names of rungs, or all", "NAMES");
            set.flag("--list", options->list, "Show the rungs and do nothing else");
            set.flag("--quick", options->quick, "Only the gates of the small shape, and the tails");
            set.text("--seeds", options->seeds, "Seeds of the inputs of the gate table", "NUMBERS");
            set.number("--tails", options->tails, "Random problems per type of input");
            set.flag("--no-sanitizers", options->no_sanitizers,
                     "Leave out compute-sanitizer's four tools");
            set.flag(
                "--only-run", options->only_run,
                "Run each rung on small problems without judging it: what the sanitizers watch");
            set.text("--peers", options->peers, "auto, none, or the path of peers_torch.py",
                     "PATH");
            set.text("--device", options->device, "cuda or cuda:N", "DEVICE");
            set.text("--out", options->out, "Where the evidence is written; none for nowhere",
                     "FILE");
          },
      .execute = [options](Session& session) { return execute_ladder(*options, session); }};
}

}  // namespace flashcore::cli

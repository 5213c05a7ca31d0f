// flashcore ladder: which rungs, and where; ladder_run.cpp does the rest.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "bench/device/plan_choice.hpp"
#include "bench/text/numbers.hpp"
#include "bench/text/table.hpp"
#include "cli/command.hpp"
#include "cli/ladder_run.hpp"
#include "cli/ladder_rung.hpp"
#include "cli/session.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using cuda::ladder::Rung;
using Json = nlohmann::ordered_json;

Result<std::vector<Rung>> chosen_rungs(const std::string& names) {
  const std::span<const Rung> all = cuda::ladder::rungs();
  if (names == "all") return std::vector<Rung>(all.begin(), all.end());
  std::vector<Rung> chosen;
  for (const std::string& name : bench::split(names, ',')) {
    const auto rung =
        std::find_if(all.begin(), all.end(), [&](const Rung& one) { return one.name == name; });
    if (rung == all.end()) {
      return invalid("--rungs: is '{}', wanted 'all' or names that --list shows", name);
    }
    chosen.push_back(*rung);
  }
  return chosen;
}

void list_rungs(const std::vector<Rung>& rungs, Session& session) {
  bench::Table table({{"rung"}, {"input"}, {"from"}, {"adds"}});
  Json rows = Json::array();
  for (const Rung& rung : rungs) {
    const std::string from = fmt::format("sm_{}", rung.min_compute_capability);
    table.row({rung.name, std::string(to_string(input_of(rung))), from, rung.adds});
    rows.push_back({{"name", rung.name},
                    {"input", to_string(input_of(rung))},
                    {"min_compute_capability", rung.min_compute_capability},
                    {"adds", rung.adds},
                    {"prediction", rung.prediction}});
  }
  for (const std::string& line : table.lines()) session.line(line);
  session.document({{"rungs", rows}});
}

Result<ExitCode> execute(const LadderOptions& options, Session& session) {
  Result<std::vector<Rung>> rungs = chosen_rungs(options.rungs);
  if (!rungs.ok()) return rungs.status();
  if (options.list) {
    list_rungs(*rungs, session);
    return ExitCode::ok;
  }
  if (options.tails < 0) return invalid("--tails: is {}, wanted 0 or more", options.tails);
  Result<std::vector<int64_t>> seeds = bench::parse_numbers(
      "--seeds", options.seeds, bench::split(options.seeds, ',').size(), "numbers such as 0,1,2");
  if (!seeds.ok()) return seeds.status();
  bench::PlanChoice choice;
  choice.device = options.device;
  const Result<std::vector<PlanOptions>> allowed = bench::allowed_devices(choice);
  if (!allowed.ok()) return allowed.status();
  const Device device = allowed->front().device;
  if (device.kind != DeviceKind::cuda) {
    return invalid("--device: is {}, wanted cuda or cuda:N", options.device);
  }
  // Rungs that this GPU cannot run are left out, by name.
  const int32_t capability = [&] {
    for (const DeviceInfo& info : devices()) {
      if (bench::to_text(info.device) == bench::to_text(device)) return info.compute_capability;
    }
    return 0;
  }();
  if (capability == 0)
    return unsupported("ladder: there is no usable GPU {}", bench::to_text(device));
  std::erase_if(*rungs, [&](const Rung& rung) {
    const bool runs =
        capability >= rung.min_compute_capability &&
        (rung.max_compute_capability == 0 || capability <= rung.max_compute_capability);
    if (!runs)
      bench::write_text(
          stderr, std::string("left out: ") + rung.name + ": this GPU lacks its instructions\n");
    return !runs;
  });
  if (options.only_run) return run_rungs_once(*rungs, device);
  return run_ladder(options, std::move(*rungs), std::move(*seeds), device, session);
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
      .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli

// flashcore tune: finds the fastest candidate for each problem on this device; bench/tune does the rest.
#include "bench/tune/tune.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/report/tables.hpp"
#include "bench/text/numbers.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cli/subjects.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAuto = "auto";

struct TuneOptions {
  bench::TuneOrder order;
  SubjectOptions subjects;
  bench::PlanChoice choice;
  std::string out;
  bool show = false;
};

std::string candidate_text(const std::string& kernel, const std::string& config) {
  return config.empty() ? kernel : kernel + ":" + config;
}

std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

Json entry_json(const std::string& key, const tuning::TunedEntry& entry) {
  return {{"key", key},
          {"kernel", entry.kernel},
          {"config", entry.config},
          {"is_default", entry.is_default},
          {"us", entry.us},
          {"default", entry.default_kernel},
          {"default_us", entry.default_us},
          {"noise", entry.noise},
          {"state", bench::state_of(entry)},
          {"measured", entry.measured},
          {"problems", entry.problems}};
}

// Shows the table in use, or the one of --out.
Result<ExitCode> show(const TuneOptions& options, const PlanOptions& plan, Session& session) {
  const Result<bench::ShownTable> shown = bench::shown_table(plan, options.out);
  if (!shown.ok()) return shown.status();
  const auto& [device, place, path, table] = *shown;
  session.line("device   " + device);
  session.line(place.empty()
                   ? "table    none; `flashcore tune` makes one: " + path
                   : fmt::format("table    {}, {}", place,
                                 bench::counted(std::ssize(table.entries), "entry", "entries")));
  bench::Table rows({{"problems"},
                     {"fastest"},
                     {"time", bench::Align::right},
                     {"ahead", bench::Align::right},
                     {"noise", bench::Align::right},
                     {"state"}});
  Json entries = Json::array();
  for (const auto& [key, entry] : table.entries) {
    const double gain = entry.us > 0 ? entry.default_us / entry.us - 1 : 0;
    const std::string state = bench::state_of(entry);
    rows.row({key,
              candidate_text(entry.kernel, entry.config),
              bench::seconds_text(1e-6 * entry.us),
              entry.is_default ? "default" : percent(gain),
              percent(entry.noise),
              {state, state == "current" ? bench::Tone::good : bench::Tone::bad}});
    entries.push_back(entry_json(key, entry));
  }
  if (!table.entries.empty()) {
    session.line();
    session.table(rows);
  }
  session.document({{"status", "ok"}, {"device", device}, {"table", place}, {"entries", entries}});
  return ExitCode::ok;
}

void print_cases(const Json& evidence, Session& session) {
  bench::Table rows({{"problem"},
                     {"default"},
                     {"time", bench::Align::right},
                     {"fastest"},
                     {"time", bench::Align::right},
                     {"ahead", bench::Align::right},
                     {"noise", bench::Align::right}});
  for (const Json& one : evidence["cases"]) {
    const std::string pass = one.contains("pass") ? " backward" : "";
    const std::string name = one["name"].get<std::string>() + pass;
    if (!one.contains("tuned")) {
      rows.row({name, {"no candidate passed", bench::Tone::bad}, "", "", "", "", ""});
      continue;
    }
    const Json& tuned = one["tuned"];
    const bool stays = tuned["winner"] == tuned["default"];
    rows.row({name, tuned["default"].get<std::string>(),
              bench::seconds_text(1e-6 * tuned["default_us"].get<double>()),
              stays ? "" : tuned["winner"].get<std::string>(),
              stays ? "" : bench::seconds_text(1e-6 * tuned["us"].get<double>()),
              stays ? "stays" : percent(tuned["gain"]), percent(tuned["noise"])});
  }
  if (!evidence["cases"].empty()) session.table(rows);
}

Result<ExitCode> execute_tune(const TuneOptions& all, Session& session) {
  FLASHCORE_RETURN_IF_ERROR(all.subjects.gradients.check(all.choice));
  TuneOptions options = all;
  const Result<std::vector<PlanOptions>> allowed = bench::allowed_devices(options.choice);
  if (!allowed.ok()) return allowed.status();
  const PlanOptions& plan = allowed->front();
  if (!plan.kernel.empty()) {
    return invalid("--kernel: is '{}', wanted none: all candidates are measured", plan.kernel);
  }
  if (plan.batch_invariant) {
    return invalid("--batch-invariant: is given, wanted none: such a choice does not go by times");
  }
  if (plan.device.kind == DeviceKind::sim) {
    return unsupported("--device: is {}, wanted one that keeps time", bench::to_text(plan.device));
  }
  if (options.show) return show(options, plan, session);
  if (options.subjects.suites == kAuto) {
    options.subjects.suites = plan.device.kind == DeviceKind::cpu ? "cpu" : "standard";
  }
  const Result<std::vector<bench::Subject>> subjects = subjects_of(options.subjects);
  if (!subjects.ok()) return subjects.status();
  bench::TuneOrder& order = options.order;
  order.table = options.out;
  const Result<bench::Tuned> tuned = bench::tune(order, *subjects, plan);
  if (!tuned.ok()) return tuned.status();
  if (!order.run.worker.empty()) return ExitCode::ok;
  const bench::TuneSummary& summary = tuned->summary;
  if (summary.interrupted) {
    session.line("interrupted; what was measured is in " + tuned->table);
    return ExitCode::interrupted;
  }
  print_cases(tuned->evidence, session);
  for (const std::string& failure : bench::run_failures(tuned->evidence)) session.line(failure);
  for (const Json& note : tuned->evidence["notes"]) {
    session.line("note: " + bench::printable(note.get<std::string>()));
  }
  session.line();
  session.line(fmt::format("measured {} in {:.0f} s; the table had {} already{}",
                           bench::counted(summary.measured, "problem"), summary.seconds,
                           summary.known,
                           summary.known > 0 ? " (--again measures them, too)" : ""));
  if (summary.measured > 0) {
    session.line(fmt::format(
        "winners  {} replace the default, which costs {} more on average, at worst {}{}",
        summary.winners, percent(summary.mean_regret), percent(summary.worst_regret),
        summary.worst.empty() ? "" : " (" + bench::printable(summary.worst) + ")"));
  }
  session.line("table    " + tuned->table);
  if (!order.run.out.empty()) session.line("evidence " + order.run.out);
  session.document({{"status", "ok"},
                    {"table", tuned->table},
                    {"measured", summary.measured},
                    {"known", summary.known},
                    {"winners", summary.winners},
                    {"mean_regret", summary.mean_regret},
                    {"worst_regret", summary.worst_regret},
                    {"complete", summary.complete},
                    {"seconds", summary.seconds},
                    {"cases", tuned->evidence["cases"]}});
  return ExitCode::ok;
}

void declare(TuneOptions& options, OptionSet& set) {
  bench::RunOptions& run = options.order.run;
  options.subjects.suites = kAuto;
  options.subjects.declare(set);
  set.group("The table");
  set.text("--out", options.out,
           "Where the table is, which is added to (default: where FLASHCORE_TUNING says, or the "
           "user's cache folder)",
           "FILE");
  set.flag("--show", options.show, "Only show the table that is in use, or that of --out");
  set.flag("--again", options.order.again, "Also measure what the table has of this build");
  set.group("Method");
  set.number("--seconds", run.seconds,
             "End after this many seconds, without the problem that is not done; 0: no limit");
  set.number(
      "--deadline", run.deadline,
      "Give up a candidate after this many seconds on a GPU, or ten times as many elsewhere");
  set.text("--evidence", run.out, "Write every candidate's gate and times, after every problem",
           "FILE");
  set.flag("--verbose", run.verbose, "Say on stderr what begins, and when");
  set.hidden("--worker", run.worker);
  set.hidden("--worker-program", run.worker_program);
  options.subjects.problem.declare(set);
  options.subjects.gradients.declare(set, options.choice);
  declare_plan_choice(set, options.choice);
}

}  // namespace

Command tune_command() {
  auto options = std::make_shared<TuneOptions>();
  return {.name = "tune",
          .summary = "Measure which kernel is fastest for which problem, for all plans to come",
          .examples =
              "  flashcore tune\n"
              "  flashcore tune --suite decode,small --seconds 60\n"
              "  flashcore tune --shape 2,8,2048,128 --dtype bf16 --causal\n"
              "  flashcore tune --cases mine.json --out table.json\n"
              "  flashcore tune --backward --shape 2,8,2048,128\n"
              "  flashcore tune --show",
          .declare = [options](OptionSet& set) { declare(*options, set); },
          .execute = [options](Session& session) { return execute_tune(*options, session); }};
}

}  // namespace flashcore::cli

// flashcore compare: shows the effect of a change on the times, before it lands.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/evidence/evidence_file.hpp"
#include "bench/report/comparison.hpp"
#include "bench/text/numbers.hpp"
#include "bench/text/table.hpp"
#include "cli/command.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CompareOptions {
  std::string before, after;
  std::string protocol;
  double threshold = 3;  // percent
  bool changed_only = false;
  bool any_device = false;
};

// The headline protocol of a file: its first one with times.
std::string headline(const Json& evidence) {
  if (!evidence.contains("protocols") || evidence["protocols"].empty()) return "";
  return evidence["protocols"].begin().key();
}

std::string time_text(double microseconds) {
  return microseconds > 0 ? bench::seconds_text(microseconds * 1e-6) : "-";
}

std::vector<bench::Cell> cells_of(const bench::ComparedPoint& point) {
  const bool worse =
      !point.peer && (point.change == bench::Change::slower || point.change == bench::Change::lost);
  const bool better = !point.peer && point.change == bench::Change::faster;
  return {point.suite.empty() ? point.problem : point.suite + ": " + point.problem,
          point.implementation + (point.peer ? " (peer)" : ""),
          time_text(point.before_us),
          time_text(point.after_us),
          point.ratio > 0 ? fmt::format("{:+.1f}%", 100 * (point.ratio - 1)) : "-",
          point.ratio > 0 ? fmt::format("{:.1f}%", 100 * point.noise) : "-",
          bench::Cell(std::string(to_string(point.change)), worse    ? bench::Tone::bad
                                                            : better ? bench::Tone::good
                                                                     : bench::Tone::plain)};
}

void print(const bench::Comparison& comparison, const CompareOptions& options, Session& session) {
  bench::Table table({{"problem"},
                      {"implementation"},
                      {"before", bench::Align::right},
                      {"after", bench::Align::right},
                      {"time", bench::Align::right},
                      {"noise", bench::Align::right},
                      {"verdict"}});
  for (const bench::ComparedPoint& point : comparison.points) {
    if (options.changed_only && point.change == bench::Change::same) continue;
    table.row(cells_of(point));
  }
  session.table(table);
  session.line();
  const auto count = [&](bench::Change change) {
    return std::count_if(comparison.points.begin(), comparison.points.end(),
                         [&](const bench::ComparedPoint& point) { return point.change == change; });
  };
  const auto gone = count(bench::Change::only_before), fresh = count(bench::Change::only_after);
  if (gone + fresh > 0) {
    session.line(fmt::format("not judged: {} only before, {} only after",
                             bench::counted(gone, "point"), bench::counted(fresh, "point")));
  }
  session.line(fmt::format("all of ours together: {:+.1f}% time (geometric mean)",
                           100 * (comparison.geometric_mean - 1)));
  if (comparison.drift_of > 0) {
    session.line(fmt::format("the machine's drift: {:+.1f}% time (median of {})",
                             100 * (comparison.drift - 1),
                             bench::counted(comparison.drift_of, "peer point")));
  } else {
    session.line("the machine's drift is not known: no peer is in both files");
  }
}

Json document_of(const bench::Comparison& comparison) {
  Json points = Json::array();
  for (const bench::ComparedPoint& point : comparison.points) {
    points.push_back({{"suite", point.suite},
                      {"problem", point.problem},
                      {"implementation", point.implementation},
                      {"source", point.peer ? "peer" : "flashcore"},
                      {"before_us", point.before_us > 0 ? Json(point.before_us) : Json()},
                      {"after_us", point.after_us > 0 ? Json(point.after_us) : Json()},
                      {"ratio", point.ratio > 0 ? Json(point.ratio) : Json()},
                      {"noise", point.noise},
                      {"change", to_string(point.change)}});
  }
  return {{"status", comparison.regressed ? "check_failed" : "ok"},
          {"geometric_mean", comparison.geometric_mean},
          {"drift", comparison.drift_of > 0 ? Json(comparison.drift) : Json()},
          {"points", points}};
}

Result<ExitCode> execute_compare(const CompareOptions& options, Session& session) {
  if (options.after.empty()) {
    return invalid("files: there are fewer than two, wanted BEFORE.json AFTER.json");
  }
  if (!(options.threshold >= 0 && std::isfinite(options.threshold))) {
    return invalid("--threshold: is {}, wanted 0 percent or more", options.threshold);
  }
  const Result<Json> before = bench::read_evidence(options.before);
  if (!before.ok()) return before.status();
  const Result<Json> after = bench::read_evidence(options.after);
  if (!after.ok()) return after.status();
  const std::string old_device = (*before)["device"]["name"],
                    new_device = (*after)["device"]["name"];
  if (old_device != new_device && !options.any_device) {
    return invalid("device: is {} and {}, wanted one (--any-device compares them anyway)",
                   bench::printable(old_device), bench::printable(new_device));
  }
  const std::string protocol = options.protocol.empty() ? headline(*before) : options.protocol;
  const Result<bench::Comparison> comparison =
      bench::compare_evidence(*before, *after, protocol, options.threshold / 100);
  if (!comparison.ok()) return comparison.status();
  const bool any = std::any_of(comparison->points.begin(), comparison->points.end(),
                               [](const bench::ComparedPoint& point) { return point.ratio > 0; });
  if (!any) {
    return invalid("points: none has a time by protocol '{}' in both files, wanted one", protocol);
  }
  print(*comparison, options, session);
  session.document(document_of(*comparison));
  return comparison->regressed ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace

Command compare_command() {
  auto options = std::make_shared<CompareOptions>();
  return {.name = "compare",
          .summary = "Compare two evidence files point by point, with their noise",
          .examples =
              "  flashcore compare before.json after.json\n"
              "  flashcore compare before.json after.json --threshold 5 --changed --json",
          .declare =
              [options](OptionSet& set) {
                set.positional("BEFORE", options->before, "Evidence from before the change");
                set.positional("AFTER", options->after, "Evidence from after the change");
                set.group("What counts");
                set.number(
                    "--threshold", options->threshold,
                    "A point changed when its time did by more than this many percent, and by more "
                    "than its noise");
                set.text("--protocol", options->protocol,
                         "Which times to compare; otherwise the headline of the files", "NAME");
                set.flag("--changed", options->changed_only, "Show only points that changed");
                set.flag("--any-device", options->any_device,
                         "Also compare files of two different devices");
              },
          .execute = [options](Session& session) { return execute_compare(*options, session); }};
}

}  // namespace flashcore::cli

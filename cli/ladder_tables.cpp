#include "cli/ladder_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/text/table.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string sanitizer_summary(const Json& sanitizers) {
  std::string failed;
  for (const auto& [tool, result] : sanitizers.items()) {
    if (!result["passed"]) failed += (failed.empty() ? "" : ", ") + tool + " FAILED";
  }
  if (!failed.empty()) return failed;
  return sanitizers.empty() ? "-" : "passed";
}

std::vector<std::string> gate_cells(const Json& rung, const Session& session) {
  const Json& gate = rung["gate"];
  int64_t good = 0, all = 0;
  for (const Json& row : gate["table"]) {
    good += row["passed"].get<int64_t>();
    all += row["passed"].get<int64_t>() + row["failed"].get<int64_t>();
  }
  const int64_t tails = gate["tails"]["passed"], bad_tails = gate["tails"]["failed"];
  const int64_t equal = gate["repeats"]["equal"], different = gate["repeats"]["different"];
  return {rung["name"],
          gate["passed"] ? session.styled("passed", bench::Tone::good)
                         : session.styled("FAILED", bench::Tone::bad),
          fmt::format("{}/{}", good, all),
          fmt::format("{}/{}", tails, tails + bad_tails),
          fmt::format("{}/{}", equal, equal + different),
          fmt::format("{:.2e}", gate["max_scaled_error"].get<double>()),
          fmt::format("{:.2e}", gate["relative_error"].get<double>()),
          sanitizer_summary(rung["sanitizers"])};
}

void print_failures(const Json& rung, Session& session) {
  const std::string name = rung["name"], failure = rung["gate"]["failure"];
  if (!failure.empty())
    session.line(bench::printable(fmt::format("failed: {}: {}", name, failure)));
  for (const auto& [tool, result] : rung["sanitizers"].items()) {
    if (result["passed"]) continue;
    const std::string first = result["first"].empty() ? std::string("it did not finish")
                                                      : result["first"][0].get<std::string>();
    session.line(bench::printable(fmt::format("failed: {}: {}: {} ({} lines)", name, tool, first,
                                              result["findings"].get<int64_t>())));
  }
}

std::string time_cell(const Json& times, const std::string& shape) {
  if (!times.contains(shape)) return "-";
  return fmt::format("{:.2f}", times[shape]["sustained"]["p50_us"].get<double>());
}

std::string ratio_cell(const Json& times, const std::string& shape, const char* ratio) {
  if (!times.contains(shape) || times[shape].value(ratio, Json()).is_null()) return "-";
  return fmt::format("{:.2f}", times[shape][ratio].get<double>());
}

// The most of any kernel and shape.
int64_t most(const Json& rung, const char* what) {
  int64_t found = 0;
  for (const auto& [shape, launches] : rung["launches"].items()) {
    for (const Json& launch : launches) found = std::max(found, launch[what].get<int64_t>());
  }
  return found;
}

}  // namespace

void print_ladder_gates(const Json& evidence, Session& session) {
  bench::Table table({{"rung"},
                      {"gate"},
                      {"table", bench::Align::right},
                      {"tails", bench::Align::right},
                      {"repeats", bench::Align::right},
                      {"scaled error", bench::Align::right},
                      {"relative", bench::Align::right},
                      {"sanitizers"}});
  for (const Json& rung : evidence["rungs"]) table.row(gate_cells(rung, session));
  for (const std::string& line : table.lines()) session.line(line);
  for (const Json& rung : evidence["rungs"]) print_failures(rung, session);
}

void print_ladder_times(const Json& evidence, Session& session) {
  std::vector<std::string> shapes;
  std::vector<bench::Column> columns = {{"rung"}};
  for (const Json& shape : evidence["shapes"]) {
    shapes.push_back(shape["name"]);
    columns.push_back({shapes.back(), bench::Align::right});
  }
  for (const char* name : {"x before", "x unfused", "regs", "shared", "host"}) {
    columns.push_back({name, bench::Align::right});
  }
  bench::Table table(columns);
  for (const Json& rung : evidence["rungs"]) {
    const Json& times = rung["times"];
    std::vector<std::string> cells = {rung["name"]};
    for (const std::string& shape : shapes) cells.push_back(time_cell(times, shape));
    cells.push_back(ratio_cell(times, shapes.front(), "speedup_over_before"));
    cells.push_back(ratio_cell(times, shapes.front(), "speedup_over_unfused"));
    const int64_t registers = most(rung, "registers");
    const double shared = static_cast<double>(most(rung, "shared_bytes")) / 1024;
    cells.push_back(registers > 0 ? std::to_string(registers) : "-");
    cells.push_back(registers > 0 ? fmt::format("{:.1f} KB", shared) : "-");
    cells.push_back(rung.contains("host_us") ? fmt::format("{:.2f}", rung["host_us"].get<double>())
                                             : "-");
    table.row(std::move(cells));
  }
  session.line();
  session.line(
      "us per call, sustained (p50); ratios are on the first shape; registers and shared memory "
      "are the maximum over shapes");
  for (const std::string& line : table.lines()) session.line(line);
}

}  // namespace flashcore::cli

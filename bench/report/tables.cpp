#include "bench/report/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "bench/text/numbers.hpp"
#include "bench/text/terminal.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

Cell mark(bool passed) { return passed ? Cell("passed", Tone::good) : Cell("FAILED", Tone::bad); }

Cell mark(int64_t passed, int64_t failed) {
  return passed + failed == 0 ? Cell("refused") : mark(failed == 0);
}

std::string text_of(const Json& object, const char* name) {
  return printable(object[name].get<std::string>());
}

std::string case_text(const Json& one) {
  return text_of(one, "suite") + ": " + text_of(one, "name");
}

std::string error_text(double error) { return fmt::format("{:.2e}", error); }

Cell run_mark(const Json& row) {
  if (row.contains("refusal")) return "refused";
  if (row.contains("error") && row["source"] == "peer") return "-";
  return mark(!row.contains("error") && row["gate"].is_object() && row["gate"]["passed"]);
}

std::vector<Cell> run_cells(const Json& one, const Json& row, const std::string& protocol) {
  std::vector<Cell> cells = {
      case_text(one), text_of(row, "implementation"), run_mark(row), "-", "-", "-", "-", "-"};
  if (row["gate"].is_object()) {
    cells[3] = fmt::format("{:.1e}", row["gate"]["max_scaled_error"].get<double>());
  }
  if (const auto time = row["times"].find(protocol); time != row["times"].end()) {
    cells[4] = seconds_text((*time)["p50_us"].get<double>() * 1e-6);
    cells[5] = seconds_text((*time)["p90_us"].get<double>() * 1e-6);
    cells[6] = rate_text((*time)["tflops"].get<double>() * 1e12);
    if (time->contains("percent_of_bound")) {
      cells[7] = fmt::format("{:.1f}%", (*time)["percent_of_bound"].get<double>());
    }
  }
  return cells;
}

std::string sanitizer_summary(const Json& sanitizers) {
  std::string failed;
  for (const auto& [tool, result] : sanitizers.items()) {
    if (!result["passed"]) failed += (failed.empty() ? "" : ", ") + tool + " FAILED";
  }
  if (!failed.empty()) return failed;
  return sanitizers.empty() ? "-" : "passed";
}

std::string of_all(int64_t good, int64_t bad) { return fmt::format("{}/{}", good, good + bad); }

// The maximum over all kernels and shapes.
int64_t most(const Json& rung, const char* what) {
  int64_t found = 0;
  for (const auto& [shape, launches] : rung["launches"].items()) {
    for (const Json& launch : launches) found = std::max(found, launch[what].get<int64_t>());
  }
  return found;
}

std::string ratio_cell(const Json& time, const char* ratio) {
  const Json value = time.value(ratio, Json());
  return value.is_null() ? "-" : fmt::format("{:.2f}", value.get<double>());
}

}  // namespace

Table run_table(const Json& evidence, const std::string& protocol) {
  Table table({{"problem"},
               {"implementation"},
               {"gate"},
               {"scaled error", Align::right},
               {"p50", Align::right},
               {"p90", Align::right},
               {"rate", Align::right},
               {"of bound", Align::right}});
  for (const Json& one : evidence["cases"]) {
    for (const Json& row : one["rows"]) table.row(run_cells(one, row, protocol));
  }
  return table;
}

std::vector<std::string> run_failures(const Json& evidence) {
  std::vector<std::string> lines;
  for (const Json& one : evidence["cases"]) {
    for (const Json& row : one["rows"]) {
      std::string why = row.value("error", std::string());
      if (why.empty() && row["gate"].is_object()) why = row["gate"]["failure"];
      if (why.empty()) continue;
      lines.push_back(fmt::format("failed: {} {}: {}", case_text(one),
                                  text_of(row, "implementation"), printable(why)));
    }
  }
  return lines;
}

std::vector<std::string> ceiling_lines(const Json& ceilings) {
  std::vector<std::string> lines;
  for (const auto& [protocol, values] : ceilings.items()) {
    std::string text = fmt::format("ceiling  {}:", protocol);
    const Json products = values.value("matrix_product", Json::object());
    for (const auto& [dtype, product] : products.items()) {
      if (product.is_null()) continue;
      text += fmt::format(" {} {} ({})", dtype, rate_text(product["tflops"].get<double>() * 1e12),
                          product["library"].get<std::string>());
    }
    if (values.contains("copy_bytes_per_second")) {
      text +=
          fmt::format(", copy {:.2f} TB/s", values["copy_bytes_per_second"].get<double>() * 1e-12);
    }
    if (values.contains("read_bytes_per_second")) {
      text +=
          fmt::format(", read {:.1f} GB/s", values["read_bytes_per_second"].get<double>() * 1e-9);
    }
    if (values.contains("empty_kernel")) {
      text +=
          fmt::format(", empty kernel {:.2f} us", values["empty_kernel"]["p50_us"].get<double>());
    }
    lines.push_back(text);
  }
  return lines;
}

Table gate_table(const std::vector<GateRow>& rows) {
  Table table({{"shape"},
               {"dtype"},
               {"mask"},
               {"kernel"},
               {"seeds", Align::right},
               {"scaled error", Align::right},
               {"relative", Align::right},
               {"LSE", Align::right},
               {"gate"}});
  for (const auto& [one, kernel, tally] : rows) {
    const auto error = [refused = tally.refused > 0](double value) {
      return refused ? "-" : error_text(value);
    };
    table.row({one.name, std::string(to_string(one.dtype)), one.causal ? "causal" : "full", kernel,
               of_all(tally.passed, tally.failed + tally.refused), error(tally.max_scaled_error),
               error(tally.relative_error), error(tally.lse_error),
               mark(tally.passed, tally.failed)});
  }
  return table;
}

Table tally_table(const std::string& heading, const Json& part) {
  Table table({{heading},
               {"passed", Align::right},
               {"failed", Align::right},
               {"refused", Align::right},
               {"gate"}});
  for (const Json& one : part["kernels"]) {
    const int64_t passed = one["passed"], failed = one["failed"], refused = one["refused"];
    table.row({text_of(one, "kernel"), std::to_string(passed), std::to_string(failed),
               std::to_string(refused), mark(passed, failed)});
  }
  return table;
}

std::vector<std::string> verify_failures(const Json& part) {
  std::vector<std::string> lines;
  for (const Json& one : part["failures"]) {
    lines.push_back(fmt::format("failed: {}: {}: {}", text_of(one, "kernel"), text_of(one, "name"),
                                text_of(one, "failure")));
    lines.push_back("  " + text_of(one, "problem"));
    lines.push_back("  repeat: " + text_of(one, "repeat"));
  }
  return lines;
}

Table ladder_gates(const Json& evidence) {
  Table table({{"rung"},
               {"gate"},
               {"table", Align::right},
               {"tails", Align::right},
               {"repeats", Align::right},
               {"scaled error", Align::right},
               {"relative", Align::right},
               {"sanitizers"}});
  for (const Json& rung : evidence["rungs"]) {
    const Json &gate = rung["gate"], &tails = gate["tails"], &repeats = gate["repeats"];
    int64_t passed = 0, failed = 0;
    for (const Json& row : gate["table"]) {
      passed += row["passed"].get<int64_t>();
      failed += row["failed"].get<int64_t>();
    }
    table.row({text_of(rung, "name"), mark(gate["passed"].get<bool>()), of_all(passed, failed),
               of_all(tails["passed"], tails["failed"]),
               of_all(repeats["equal"], repeats["different"]), error_text(gate["max_scaled_error"]),
               error_text(gate["relative_error"]), sanitizer_summary(rung["sanitizers"])});
  }
  return table;
}

Table ladder_times(const Json& evidence) {
  const std::string protocol = evidence["protocols"].begin().key();
  std::vector<std::string> shapes;
  std::vector<Column> columns = {{"rung"}};
  for (const Json& shape : evidence["shapes"]) {
    shapes.push_back(shape["name"]);
    columns.push_back({shapes.back(), Align::right});
  }
  for (const char* name : {"x before", "x unfused", "regs", "shared", "host"}) {
    columns.push_back({name, Align::right});
  }
  Table table(columns);
  for (const Json& rung : evidence["rungs"]) {
    const Json& times = rung["times"];
    std::vector<Cell> cells = {text_of(rung, "name")};
    for (const std::string& shape : shapes) {
      cells.emplace_back(times.contains(shape)
                             ? fmt::format("{:.2f}", times[shape][protocol]["p50_us"].get<double>())
                             : "-");
    }
    const Json first = times.value(shapes.front(), Json::object());
    cells.emplace_back(ratio_cell(first, "speedup_over_before"));
    cells.emplace_back(ratio_cell(first, "speedup_over_unfused"));
    const int64_t registers = most(rung, "registers");
    const double shared = static_cast<double>(most(rung, "shared_bytes")) / 1024;
    cells.emplace_back(registers > 0 ? std::to_string(registers) : "-");
    cells.emplace_back(registers > 0 ? fmt::format("{:.1f} KB", shared) : "-");
    cells.emplace_back(
        rung.contains("host_us") ? fmt::format("{:.2f}", rung["host_us"].get<double>()) : "-");
    table.row(std::move(cells));
  }
  return table;
}

std::vector<std::string> ladder_failures(const Json& evidence) {
  std::vector<std::string> lines;
  for (const Json& rung : evidence["rungs"]) {
    const std::string name = text_of(rung, "name"), failure = text_of(rung["gate"], "failure");
    if (!failure.empty()) lines.push_back(fmt::format("failed: {}: {}", name, failure));
    if (rung.contains("error")) {
      lines.push_back(fmt::format("failed: {}: {}", name, text_of(rung, "error")));
    }
    for (const auto& [tool, result] : rung["sanitizers"].items()) {
      if (result["passed"]) continue;
      const std::string first = result["first"].empty() ? std::string("it did not finish")
                                                        : result["first"][0].get<std::string>();
      lines.push_back(printable(fmt::format("failed: {}: {}: {} ({})", name, tool, first,
                                            counted(result["findings"], "line"))));
    }
  }
  return lines;
}

}  // namespace flashcore::bench

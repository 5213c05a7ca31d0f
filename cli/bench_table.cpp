#include "cli/bench_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench/run/case_evidence.hpp"
#include "bench/text/numbers.hpp"
#include "bench/text/table.hpp"
#include "bench/text/terminal.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

const Json* time_of(const Json& row, const std::string& protocol) {
  const auto found = row["times"].find(protocol);
  return found == row["times"].end() ? nullptr : &*found;
}

std::string gate_cell(const Json& row, const Session& session) {
  if (row.contains("refusal")) return "refused";
  if (row.contains("error")) {
    return row["source"] == "peer" ? "-" : session.styled("FAILED", bench::Tone::bad);
  }
  const bool passed = row["gate"].is_object() && row["gate"]["passed"];
  return passed ? session.styled("passed", bench::Tone::good)
                : session.styled("FAILED", bench::Tone::bad);
}

std::vector<std::string> cells_of(const Json& one, const Json& row, const std::string& protocol,
                                  const Session& session) {
  std::vector<std::string> cells = {
      one["name"], row["implementation"], gate_cell(row, session), "-", "-", "-", "-", "-"};
  if (row["gate"].is_object()) {
    cells[3] = fmt::format("{:.1e}", row["gate"]["max_scaled_error"].get<double>());
  }
  if (const Json* const time = time_of(row, protocol)) {
    cells[4] = bench::seconds_text((*time)["p50_us"].get<double>() * 1e-6);
    cells[5] = bench::seconds_text((*time)["p90_us"].get<double>() * 1e-6);
    cells[6] = bench::rate_text((*time)["tflops"].get<double>() * 1e12);
    if (time->contains("percent_of_bound")) {
      cells[7] = fmt::format("{:.1f}%", (*time)["percent_of_bound"].get<double>());
    }
  }
  return cells;
}

void print_ceilings(const Json& ceilings, Session& session) {
  for (const auto& [protocol, values] : ceilings.items()) {
    std::string text = fmt::format("ceiling  {}:", protocol);
    const Json products = values.value("matrix_product", Json::object());
    for (const auto& [dtype, product] : products.items()) {
      if (product.is_null()) continue;
      text += fmt::format(" {} {} ({})", dtype,
                          bench::rate_text(product["tflops"].get<double>() * 1e12),
                          product["library"].get<std::string>());
    }
    if (values.contains("copy_bytes_a_second")) {
      text +=
          fmt::format(", copy {:.2f} TB/s", values["copy_bytes_a_second"].get<double>() * 1e-12);
    }
    if (values.contains("empty_kernel")) {
      text +=
          fmt::format(", empty kernel {:.2f} us", values["empty_kernel"]["p50_us"].get<double>());
    }
    session.line(text);
  }
}

}  // namespace

std::string bench_line(const Json& one, const std::string& protocol) {
  std::string text = one["name"].get<std::string>() + ":";
  for (const Json& row : one["rows"]) {
    const Json* const time = time_of(row, protocol);
    if (time == nullptr) continue;
    text += fmt::format(" {} {:.2f} us ({})", row["implementation"].get<std::string>(),
                        (*time)["p50_us"].get<double>(),
                        bench::rate_text((*time)["tflops"].get<double>() * 1e12));
  }
  return text;
}

void print_bench(const Json& evidence, const std::string& protocol, Session& session) {
  bench::Table table({{"problem"},
                      {"implementation"},
                      {"gate"},
                      {"scaled error", bench::Align::right},
                      {"p50", bench::Align::right},
                      {"p90", bench::Align::right},
                      {"rate", bench::Align::right},
                      {"of bound", bench::Align::right}});
  std::vector<std::string> failures;
  for (const Json& one : evidence["cases"]) {
    for (const Json& row : one["rows"]) {
      table.row(cells_of(one, row, protocol, session));
      std::string why = row.value("error", std::string());
      if (why.empty() && row["gate"].is_object()) why = row["gate"]["failure"];
      if (why.empty()) continue;
      failures.push_back(fmt::format("failed: {} {}: {}", one["name"].get<std::string>(),
                                     row["implementation"].get<std::string>(), why));
    }
  }
  session.line("device   " + evidence["device"]["name"].get<std::string>());
  session.line("timing   " + protocol + ": " + evidence["protocols"][protocol].get<std::string>());
  print_ceilings(evidence["ceilings"], session);
  session.line();
  for (const std::string& line : table.lines()) session.line(line);
  for (const std::string& failure : failures) session.line(bench::printable(failure));
  for (const Json& note : evidence["notes"]) {
    session.line("note: " + bench::printable(note.get<std::string>()));
  }
}

ExitCode print_bench_result(const Json& evidence, const std::string& out, Session& session) {
  const Json& protocols = evidence["protocols"];
  print_bench(evidence, protocols.empty() ? "" : protocols.begin().key(), session);
  if (!out.empty()) session.line("evidence " + out);
  const bool failed =
      std::any_of(evidence["cases"].begin(), evidence["cases"].end(), bench::has_failure);
  Json document = {{"status", failed ? "check_failed" : "ok"}};
  document.update(evidence);
  session.document(document);
  return failed ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace flashcore::cli

#include "bench/evidence/rates.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bench/evidence/evidence.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

// The least time that the run's ceilings allow; 0 if none was measured for this type.
double bound_us(const Json& one, const Json& ceilings, const std::string& protocol) {
  const auto of_run = Json::json_pointer() / protocol;
  const double tflops =
      ceilings.value(of_run / "matrix_product" / one["dtype"].get<std::string>() / "tflops", 0.0);
  const double copied = ceilings.value(of_run / "copy_bytes_per_second", 0.0);
  return std::max(tflops > 0 ? one["flop"].get<double>() / tflops * 1e-6 : 0,
                  copied > 0 ? one["bytes"].get<double>() / copied * 1e6 : 0);
}

// The ratio of each of our rows to the fastest peer; above 1 we are faster.
void add_ratios(Json& rows, const std::string& protocol) {
  const auto us = [&](const Json& row) { return row["times"][protocol]["p50_us"].get<double>(); };
  const Json* best = nullptr;
  for (const Json& row : rows) {
    if (row["source"] != "peer" || !row["times"].contains(protocol)) continue;
    if (best == nullptr || us(row) < us(*best)) best = &row;
  }
  for (Json& row : rows) {
    if (best == nullptr || row["source"] == "peer" || !row["times"].contains(protocol)) continue;
    const double speedup = us(*best) / us(row);
    Json& time = row["times"][protocol];
    time["fastest_peer"] = (*best)["implementation"];
    time["speedup_over_fastest_peer"] = speedup;
  }
}

// body(case, its rows) for the cases of a file whose rows have times.
template <class Body>
void for_each_case(Json& evidence, const Body& body) {
  const std::string kind = evidence.value("kind", "");
  if (kind != "bench" && kind != "tuning") return;
  for (Json& one : evidence["cases"]) {
    Json rows = std::move(one["rows"]);
    if (one.contains("dtype") && one.contains("flop") && one.contains("bytes")) body(one, rows);
    one["rows"] = std::move(rows);
  }
}

}  // namespace

void add_rates(Json& rows, const Json& one, const Json& ceilings) {
  for (Json& row : rows) {
    for (auto& [protocol, time] : row["times"].items()) {
      const double us = time["p50_us"];
      time["tflops"] = one["flop"].get<double>() / us * 1e-6;
      const double bound = bound_us(one, ceilings, protocol);
      if (bound > 0) time["percent_of_bound"] = 100 * bound / us;
    }
  }
  for (const auto& [protocol, ignored] : ceilings.items()) add_ratios(rows, protocol);
}

void add_rates(Json& evidence) {
  const Json ceilings = evidence.value("ceilings", Json::object());
  for_each_case(evidence, [&](const Json& one, Json& rows) {
    add_rates(rows, one, ceilings);
    rows = rounded(std::move(rows));
  });
}

Json without_rates(Json evidence) {
  for_each_case(evidence, [](const Json&, Json& rows) {
    for (Json& row : rows) {
      for (Json& time : row["times"]) {
        for (const char* const name :
             {"tflops", "percent_of_bound", "fastest_peer", "speedup_over_fastest_peer"}) {
          time.erase(name);
        }
      }
    }
  });
  return evidence;
}

}  // namespace flashcore::bench

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
double bound_seconds(const Json& one, const Json& all_ceilings, const std::string& protocol) {
  const Json ceilings = all_ceilings.value(protocol, Json::object());
  double bound = 0;
  const Json products = ceilings.value("matrix_product", Json::object());
  const std::string dtype = one["dtype"];
  if (products.contains(dtype) && !products[dtype].is_null()) {
    bound = one["flop"].get<double>() / (products[dtype]["tflops"].get<double>() * 1e12);
  }
  if (const double rate = ceilings.value("copy_bytes_per_second", 0.0); rate > 0) {
    bound = std::max(bound, one["bytes"].get<double>() / rate);
  }
  return bound;
}

// The ratio of each of our rows to the fastest peer; above 1 we are faster.
void add_ratios(Json& rows, const std::string& protocol) {
  double best = 0;
  std::string name;
  for (const Json& row : rows) {
    if (row["source"] != "peer" || !row["times"].contains(protocol)) continue;
    const double p50 = row["times"][protocol]["p50_us"];
    if (best == 0 || p50 < best) {
      best = p50;
      name = row["implementation"];
    }
  }
  for (Json& row : rows) {
    if (best == 0 || row["source"] == "peer" || !row["times"].contains(protocol)) continue;
    Json& time = row["times"][protocol];
    time["fastest_peer"] = name;
    time["speedup_over_fastest_peer"] = best / time["p50_us"].get<double>();
  }
}

// The cases of a file whose rows have times; an empty list in other kinds of evidence.
Json* cases_of(Json& evidence) {
  const bool timed = evidence["kind"] == "bench" || evidence["kind"] == "tuning";
  return timed && evidence.contains("cases") ? &evidence["cases"] : nullptr;
}

}  // namespace

void add_rates(Json& rows, const Json& one, const Json& ceilings) {
  for (Json& row : rows) {
    for (auto& [protocol, time] : row["times"].items()) {
      const double us = time["p50_us"];
      time["tflops"] = one["flop"].get<double>() / us * 1e-6;
      if (const double bound = bound_seconds(one, ceilings, protocol); bound > 0) {
        time["percent_of_bound"] = 100 * bound / (us * 1e-6);
      }
    }
  }
  for (const auto& [protocol, ignored] : ceilings.items()) add_ratios(rows, protocol);
}

void add_rates(Json& evidence) {
  Json* const cases = cases_of(evidence);
  if (cases == nullptr) return;
  const Json ceilings = evidence.value("ceilings", Json::object());
  for (Json& one : *cases) {
    if (!one.contains("dtype") || !one.contains("flop") || !one.contains("bytes")) continue;
    Json rows = std::move(one["rows"]);
    add_rates(rows, one, ceilings);
    one["rows"] = rounded(std::move(rows));
  }
}

Json without_rates(Json evidence) {
  Json* const cases = cases_of(evidence);
  if (cases == nullptr) return evidence;
  for (Json& one : *cases) {
    for (Json& row : one["rows"]) {
      for (Json& time : row["times"]) {
        for (const char* const name :
             {"tflops", "percent_of_bound", "fastest_peer", "speedup_over_fastest_peer"}) {
          time.erase(name);
        }
      }
    }
  }
  return evidence;
}

}  // namespace flashcore::bench

#include "bench/ladder/ladder_evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kUnfused = "00_unfused";

// A kernel's first failure on random problems, as a sentence; empty if there is none.
std::string first_failure(const std::string& kernel, const Findings& found) {
  for (const Failure& one : found.failures()) {
    if (one.kernel == kernel) {
      return fmt::format("tail {} ({}): {}", one.name, one.problem, one.what);
    }
  }
  return {};
}

Json peer_json(const Json& row) {
  const bool judged = row["gate"].is_object();
  Json peer = {{"backend", row["implementation"]},
               {"version", row.value("version", "")},
               {"passed", judged && row["gate"]["passed"]}};
  if (judged) peer["max_scaled_error"] = row["gate"]["max_scaled_error"];
  for (const char* const name : {"error", "host_us"}) {
    if (row.contains(name)) peer[name] = row[name];
  }
  peer.update(row["times"]);
  return peer;
}

}  // namespace

Json rung_gate(const std::string& rung, const std::vector<GateRow>& table, const Findings& tails) {
  Json rows = Json::array();
  double scaled_error = 0, relative_error = 0;
  int64_t equal = 0, different = 0;
  std::string failure;
  for (const auto& [one, kernel, tally] : table) {
    if (kernel != rung) continue;
    rows.push_back({{"shape", one.name},
                    {"causal", one.causal},
                    {"passed", tally.passed},
                    {"failed", tally.failed + tally.refused},
                    {"max_scaled_error", tally.max_scaled_error},
                    {"relative_error", tally.relative_error},
                    {"lse_error", tally.lse_error}});
    scaled_error = std::max(scaled_error, tally.max_scaled_error);
    relative_error = std::max(relative_error, tally.relative_error);
    equal += tally.passed;  // a run whose repetition differs does not pass
    different += tally.different;
    if (failure.empty()) failure = tally.failure.empty() ? tally.refusal : tally.failure;
  }
  if (failure.empty()) failure = first_failure(rung, tails);
  const auto found = tails.tallies().find(rung);
  const Tally random = found == tails.tallies().end() ? Tally() : found->second;
  return {{"passed", failure.empty() && !rows.empty()},
          {"failure", failure},
          {"max_scaled_error", scaled_error},
          {"relative_error", relative_error},
          {"table", rows},
          {"tails",
           {{"passed", random.passed}, {"failed", random.failed}, {"refused", random.refused}}},
          {"repeats", {{"equal", equal}, {"different", different}}}};
}

Json& rung_record(Json& evidence, const std::string& name) {
  Json& records = evidence["rungs"];
  return *std::find_if(records.begin(), records.end(),
                       [&](const Json& one) { return one["name"] == name; });
}

void add_case(Json& evidence, const Json& one) {
  const std::string shape = one["name"];
  for (const Json& row : one["rows"]) {
    if (row["source"] == "peer") {
      evidence["peers"]["shapes"][shape].push_back(peer_json(row));
      continue;
    }
    Json& own = rung_record(evidence, row["implementation"]);
    const std::string why = row.contains("error")     ? row["error"].get<std::string>()
                            : row.contains("refusal") ? row["refusal"].get<std::string>()
                                                      : row["gate"]["failure"].get<std::string>();
    if (!why.empty()) {
      own["error"] = fmt::format("{}: {}", shape, why);
      continue;
    }
    own["times"][shape] = row["times"];
    own["launches"][shape] = row["launches"];
    if (!own.contains("host_us") && row.contains("host_us")) own["host_us"] = row["host_us"];
  }
  add_ratios(evidence);
}

void add_ratios(Json& evidence) {
  const auto protocol = evidence["protocols"].begin();
  if (protocol == evidence["protocols"].end()) return;
  for (const Json& shape : evidence["shapes"]) {
    const std::string name = shape["name"];
    double before = 0, unfused = 0;
    for (Json& rung : evidence["rungs"]) {
      Json& times = rung["times"];
      if (!times.contains(name)) continue;
      Json& time = times[name];
      const double p50 = time[protocol.key()]["p50_us"];
      if (rung["name"] == kUnfused) unfused = p50;
      time["speedup_over_before"] = before > 0 ? Json(before / p50) : Json();
      time["speedup_over_unfused"] = unfused > 0 ? Json(unfused / p50) : Json();
      before = p50;
    }
  }
}

bool ladder_passed(const Json& evidence) {
  return std::all_of(evidence["rungs"].begin(), evidence["rungs"].end(), [](const Json& rung) {
    return rung["gate"]["passed"] && !rung.contains("error") &&
           std::all_of(rung["sanitizers"].begin(), rung["sanitizers"].end(),
                       [](const Json& result) { return result["passed"].get<bool>(); });
  });
}

}  // namespace flashcore::bench

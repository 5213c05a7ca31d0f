#include "bench/run/case_evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bench/cases/problem_text.hpp"
#include "bench/cases/work.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/evidence/rates.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/text/numbers.hpp"
#include "plan/fingerprints.hpp"
#include "problem/problem.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

double bytes_of(const Subject& subject) {
  const Problem problem = subject.problem();
  double bytes = 0;
  if (subject.gradients) {
    for_each_gradient(*subject.gradients, [&](std::string_view, const TensorDesc& desc) {
      bytes += element_bytes(desc);
    });
  }
  for (const auto& desc :
       {std::optional(problem.q), std::optional(problem.k), std::optional(problem.v),
        std::optional(problem.o), problem.bias, problem.mask}) {
    if (desc) bytes += element_bytes(*desc);
  }
  if (subject.one.ragged) {  // keys past the lengths are not read
    double used = 0;
    for (const int32_t keys : keys_in_use(subject.one)) used += keys;
    const double all = static_cast<double>(subject.one.batch * subject.one.seqlen_kv);
    bytes -= (1 - used / all) * (element_bytes(problem.k) + element_bytes(problem.v));
  }
  return bytes;
}

Json gate_json(const Verdict& verdict, const Subject& subject) {
  const Problem problem = subject.problem();
  return subject.gradients ? verdict_json(verdict, gradient_limits(problem, *subject.gradients))
                           : verdict_json(verdict, problem);
}

Json row_json(const Point& point, const Subject& subject) {
  Json row = {{"implementation", point.name},
              {"source", point.is_peer() ? "peer" : "flashcore"},
              {"fingerprint", point.fingerprint}};
  if (point.is_default) row["default"] = true;
  if (!point.version.empty()) row["version"] = point.version;
  if (!point.refusal.empty()) row["refusal"] = point.refusal;
  if (!point.error.empty()) row["error"] = point.error;
  row["gate"] = point.verdict ? gate_json(*point.verdict, subject) : Json();
  row["times"] = Json::object();
  for (const auto& [protocol, timing] : point.times) {
    Json time = timing_evidence(timing);
    Json rounds = Json::array();
    for (const double p50 : point.p50.at(protocol)) rounds.push_back(p50 * 1e6);
    time["rounds_us"] = rounds;
    row["times"][protocol] = time;
  }
  if (!point.launches.is_null()) row["launches"] = point.launches;
  if (point.host_seconds > 0) row["host_us"] = point.host_seconds * 1e6;
  if (point.workspace_bytes > 0) row["workspace_bytes"] = point.workspace_bytes;
  if (point.resident_growth > 0) row["resident_growth_bytes"] = point.resident_growth;
  return row;
}

}  // namespace

Json case_json(const Subject& subject) {
  const Problem problem = subject.problem();
  const Result<ForwardProblem> resolved = resolve(problem);
  const ForwardProblem p = resolved.ok() ? *resolved : ForwardProblem{};
  Json one = {
      {"name", subject.name()},  {"suite", subject.suite},   {"dtype", to_string(problem.q.dtype)},
      {"batch", p.batch},        {"heads_q", p.heads_q},     {"heads_kv", p.heads_kv},
      {"seqlen_q", p.seqlen_q},  {"seqlen_kv", p.seqlen_kv}, {"head_dim", p.head_dim_qk},
      {"causal", problem.causal}};
  if (subject.given) one["problem"] = problem_json(problem);
  if (const std::string features = features_text(subject.one); !features.empty()) {
    one["features"] = features;
  }
  if (subject.gradients) one["pass"] = "backward";
  if (subject.gradients && subject.given) one["gradients"] = gradients_json(*subject.gradients);
  one["flop"] = subject.gradients ? backward_flop(problem) : forward_flop(problem);
  one["bytes"] = bytes_of(subject);
  return one;
}

Json rows_json(const std::vector<Point>& points, const Json& one, const Subject& subject,
               const Json& ceilings) {
  Json rows = Json::array();
  for (const Point& point : points) rows.push_back(row_json(point, subject));
  add_rates(rows, one, ceilings);
  return rows;
}

const Json* finished_case(const Json& earlier, const Subject& subject, bool wants_peers) {
  Json wanted = rounded(case_json(subject));
  wanted.erase("flop");  // depends on the lengths, which are data
  for (const Json& one : earlier) {
    const bool same = std::all_of(
        wanted.items().begin(), wanted.items().end(),
        [&](const auto& item) { return one.value(item.key(), Json()) == item.value(); });
    if (!same) continue;
    const Json& rows = one["rows"];
    const bool current = std::all_of(rows.begin(), rows.end(), [&](const Json& row) {
      return row["source"] == "peer" ||
             row["fingerprint"].get<std::string>().empty() ||  // did not run
             is_current(row["implementation"].get<std::string>(),
                        row["fingerprint"].get<std::string>());
    });
    const bool has_peers = std::any_of(rows.begin(), rows.end(),
                                       [](const Json& row) { return row["source"] == "peer"; });
    if (current && !rows.empty() && (has_peers || !wants_peers)) return &one;
  }
  return nullptr;
}

bool has_failure(const Json& one) {
  return std::any_of(one["rows"].begin(), one["rows"].end(), [](const Json& row) {
    if (row["source"] == "peer" || row.contains("refusal")) return false;
    return row.contains("error") || !row["gate"].is_object() || !row["gate"]["passed"];
  });
}

std::string case_line(const Json& one, const std::string& protocol) {
  std::string text = one["name"].get<std::string>() + ":";
  for (const Json& row : one["rows"]) {
    const auto found = row["times"].find(protocol);
    if (found == row["times"].end()) continue;
    text += fmt::format(" {} {:.2f} us ({})", row["implementation"].get<std::string>(),
                        (*found)["p50_us"].get<double>(),
                        rate_text((*found)["tflops"].get<double>() * 1e12));
  }
  return text;
}

std::string tuned_line(const Json& one) {
  const Json& tuned = one["tuned"];
  const std::string text =
      fmt::format("{}: {} {:.2f} us", one["name"].get<std::string>(),
                  tuned["winner"].get<std::string>(), tuned["us"].get<double>());
  if (tuned["winner"] == tuned["default"]) return text + ", the default stays";
  return fmt::format("{}, {:.1f}% ahead of {} (noise {:.1f}%)", text,
                     100 * tuned["gain"].get<double>(), tuned["default"].get<std::string>(),
                     100 * tuned["noise"].get<double>());
}

}  // namespace flashcore::bench

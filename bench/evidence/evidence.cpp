#include "bench/evidence/evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/evidence/commit.hpp"
#include "bench/evidence/compact.hpp"
#include "bench/evidence/rates.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {
namespace {

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text, length};
}

using Json = nlohmann::ordered_json;

constexpr size_t kLongestLine = 100;

// A row of the compact form stands in one line, but for its members that take several.
std::string lines_of(const Json& value) {
  std::string line = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (line.size() <= kLongestLine || std::none_of(value.begin(), value.end(), [](const Json& one) {
        return one.is_structured();
      })) {
    return line;
  }
  const bool is_row = value.is_array() && value[0].is_string() &&
                      value[0].get_ref<const std::string&>().starts_with('#');
  std::string text;
  bool broken = !is_row;
  for (const auto& [key, member] : value.items()) {
    const std::string part = lines_of(member);
    const bool is_long = part.find('\n') != std::string::npos;
    broken = broken || is_long;
    if (!text.empty()) text += ',';
    if (!is_row || is_long) text += '\n';
    if (value.is_object()) text += Json(key).dump() + ":";
    text += part;
  }
  if (!broken) return line;
  return value.is_object() ? "{" + text + "\n}" : "[" + text + "\n]";
}

}  // namespace

BuiltFrom built_from() { return {build::kCommit, build::kModified, build::kDay}; }

nlohmann::ordered_json new_evidence(const std::string& kind) {
  const BuildInfo build = build_info();
  const DeviceInfo cpu = devices().front();
  return {{"schema", "flashcore-evidence"},
          {"version", kEvidenceVersion},
          {"kind", kind},
          {"complete", false},
          {"created", utc_now()},
          {"library",
           {{"version", build.version},
            {"commit", build::kCommit},
            {"modified", build::kModified},
            {"compiler", build.compiler},
            {"build_type", build.build_type},
            {"cuda_targets", build.cuda_targets}}},
          {"host", {{"processor", cpu.name}, {"threads", cpu.multiprocessors}}}};
}

Json rounded(Json value) {
  if (value.is_structured()) {
    for (Json& member : value) member = rounded(std::move(member));
  } else if (value.is_number_float()) {
    const double number = value;
    if (number != std::floor(number)) value = std::stod(fmt::format("{:.6g}", number));
  }
  return value;
}

std::string evidence_text(const Json& evidence) {
  return lines_of(compact(without_rates(rounded(evidence)))) + "\n";
}

}  // namespace flashcore::bench

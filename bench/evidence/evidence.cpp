#include "bench/evidence/evidence.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/evidence/commit.hpp"
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
constexpr size_t kRowDepth = 4;  // {"cases": [{"rows": [row]}]}

void append(std::string& text, const Json& value, size_t depth) {
  const std::string line = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!value.is_structured() || depth >= kRowDepth || line.size() <= kLongestLine) {
    text += line;
    return;
  }
  bool first = true;
  text += value.is_object() ? "{\n" : "[\n";
  for (const auto& [key, member] : value.items()) {
    if (!first) text += ",\n";
    text.append(depth + 1, ' ');
    if (value.is_object()) text.append(Json(key).dump()).append(":");
    append(text, member, depth + 1);
    first = false;
  }
  text.append("\n").append(depth, ' ').append(value.is_object() ? "}" : "]");
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
  std::string text;
  append(text, rounded(evidence), 0);
  return text + "\n";
}

}  // namespace flashcore::bench

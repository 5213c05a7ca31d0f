#include "bench/evidence.hpp"

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "bench/commit.hpp"

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

}  // namespace

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

nlohmann::ordered_json timing_evidence(const Timing& timing) {
  return {{"p50_us", timing.p50 * 1e6},
          {"p90_us", timing.p90 * 1e6},
          {"samples", timing.samples},
          {"calls_a_sample", timing.calls_a_sample}};
}

}  // namespace flashcore::bench

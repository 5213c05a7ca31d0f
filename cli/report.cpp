#include "cli/report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/device/plan_choice.hpp"

namespace flashcore::cli {

std::string device_text(const DeviceInfo& device) {
  const bool cpu = device.device.kind == DeviceKind::cpu;
  return fmt::format("{}: {}, {} {}", bench::to_text(device.device),
                     device.name.empty() ? "unknown" : device.name, device.multiprocessors,
                     cpu ? "threads" : "SMs");
}

nlohmann::ordered_json device_json(const DeviceInfo& device) {
  return {{"device", bench::to_text(device.device)},
          {"name", device.name},
          {"compute_capability", device.compute_capability},
          {"multiprocessors", device.multiprocessors},
          {"shared_memory_per_block", device.shared_memory_per_block},
          {"memory_bytes", device.memory_bytes}};
}

nlohmann::ordered_json timing_json(const bench::Timing& timing, double flop) {
  return {{"p50_seconds", timing.p50},
          {"p90_seconds", timing.p90},
          {"samples", timing.samples},
          {"calls_per_sample", timing.calls_per_sample},
          {"gflops", flop / timing.p50 / 1e9}};
}

}  // namespace flashcore::cli

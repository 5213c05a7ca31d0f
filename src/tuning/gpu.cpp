#include "tuning/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <tuple>

#include "tuning/gpu_tables.inc"

namespace flashcore::tuning {
namespace {

bool is_of(const GpuTable& table, const DeviceInfo& device) {
  return table.gpu == device.name && table.multiprocessors == device.multiprocessors;
}

const GpuTable& nearest_table(const DeviceInfo& device) {
  const auto distance = [&](const GpuTable& table) {
    return std::tuple(!is_of(table, device),
                      std::abs(table.compute_capability - device.compute_capability),
                      std::abs(table.multiprocessors - device.multiprocessors));
  };
  const std::span<const GpuTable> tables = gpu_tables();
  return *std::min_element(tables.begin(), tables.end(), [&](const GpuTable& a, const GpuTable& b) {
    return distance(a) < distance(b);
  });
}

Constants between(const Constants& a, const Constants& b, double part) {
  const auto mix = [&](double from, double to) { return from + part * (to - from); };
  return {.begin_and_end = mix(a.begin_and_end, b.begin_and_end),
          .step = mix(a.step, b.step),
          .mask = mix(a.mask, b.mask),
          .alone = mix(a.alone, b.alone),
          .tail = mix(a.tail, b.tail)};
}

Constants scaled(Constants constants, double times) {
  constants.begin_and_end *= times;
  constants.step *= times;
  constants.mask *= times;
  return constants;
}

}  // namespace

std::span<const GpuTable> gpu_tables() { return kGpuTables; }

std::optional<Constants> constants_of(const GpuTable& table, std::string_view tile,
                                      int64_t head_dim) {
  const TileConstants *below = nullptr, *above = nullptr;
  for (const TileConstants& one : table.tiles) {
    if (one.tile != tile) continue;
    if (one.head_dim <= head_dim && (below == nullptr || one.head_dim > below->head_dim)) {
      below = &one;
    }
    if (one.head_dim >= head_dim && (above == nullptr || one.head_dim < above->head_dim)) {
      above = &one;
    }
  }
  if (below == nullptr && above == nullptr) return std::nullopt;
  if (below == nullptr) return above->constants;
  if (above == nullptr || below == above) return below->constants;
  const auto width = static_cast<double>(above->head_dim - below->head_dim);
  return between(below->constants, above->constants,
                 static_cast<double>(head_dim - below->head_dim) / width);
}

std::string Tuning::provenance() const {
  if (is_own) return {};
  return fmt::format("not measured on this GPU: times are scaled from {}", table->gpu);
}

bool has_own_table(const DeviceInfo& device) { return is_of(nearest_table(device), device); }

Tuning tuning_of(const DeviceInfo& device, const DeviceSpeed& speed) {
  constexpr double kBytesPerUsOfGbS = 1e3;
  const GpuTable& table = nearest_table(device);
  Tuning tuning{.table = &table,
                .is_own = is_of(table, device),
                .bytes_per_us = kBytesPerUsOfGbS * table.speed.memory_gb_s,
                .multiprocessors = device.multiprocessors};
  if (tuning.is_own) return tuning;
  if (speed.sm_clock_mhz > 0) tuning.time_scale = table.speed.sm_clock_mhz / speed.sm_clock_mhz;
  if (speed.memory_gb_s > 0) tuning.bytes_per_us = kBytesPerUsOfGbS * speed.memory_gb_s;
  return tuning;
}

double predicted_us(const Tuning& tuning, const ForwardProblem& p, const WorkUnit& unit) {
  const std::optional<Constants> constants =
      constants_of(*tuning.table, unit.tile, std::max(p.head_dim_qk, p.head_dim_v));
  if (!constants) return std::numeric_limits<double>::infinity();
  return predicted_us(work_of(p, unit, tuning.multiprocessors),
                      scaled(*constants, tuning.time_scale),
                      tuning.time_scale * tuning.table->launch, tuning.bytes_per_us);
}

bool is_measured(const Tuning& tuning, const ForwardProblem& p) {
  // Counts waves of clusters of two SMs.
  constexpr WorkUnit kUnit{.block_q = 64, .group_q = 64, .step_keys = 256, .sms = 2};
  const Work work = work_of(p, kUnit, tuning.multiprocessors);
  const bool is_short = work.units_per_sm <= 2 || work.longest <= tuning.table->most_steps;
  return work.units_per_sm <= tuning.table->most_waves && is_short;
}

}  // namespace flashcore::tuning

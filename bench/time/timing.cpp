#include "bench/time/timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

namespace flashcore::bench {
namespace {

double seconds_now(int processor_threads) {
  timespec now{};
  clock_gettime(processor_threads > 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return (static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec)) /
         std::max(processor_threads, 1);
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  return values[std::min(index, values.size() - 1)];
}

void summarise(Timing& timing) {
  timing.samples = std::ssize(timing.sample_seconds);
  timing.p50 = quantile(timing.sample_seconds, 0.5);
  timing.p90 = quantile(timing.sample_seconds, 0.9);
}

Timing pooled(const std::vector<Timing>& rounds) {
  Timing all = rounds.front();
  for (size_t i = 1; i < rounds.size(); ++i) {
    all.sample_seconds.insert(all.sample_seconds.end(), rounds[i].sample_seconds.begin(),
                              rounds[i].sample_seconds.end());
  }
  summarise(all);
  return all;
}

nlohmann::ordered_json timing_evidence(const Timing& timing) {
  return {{"p50_us", timing.p50 * 1e6},
          {"p90_us", timing.p90 * 1e6},
          {"samples", timing.samples},
          {"calls_per_sample", timing.calls_per_sample}};
}

std::string CpuTimer::protocol() const {
  return fmt::format("wall time, median of at least {} after a warm-up", limits_.min_samples);
}

// Returns the seconds for `calls` calls, or the first error.
Result<double> CpuTimer::measure(const TimedCall& call, int64_t calls) const {
  const double start = seconds_now(limits_.processor_threads);
  for (int64_t i = 0; i < calls; ++i) {
    if (Status status = call(Stream{}); !status.ok()) return status;
  }
  return seconds_now(limits_.processor_threads) - start;
}

Result<Timing> CpuTimer::time(const TimedCall& call) {
  double warm = 0;
  double shortest = 0;
  for (int64_t calls = 0; calls == 0 || warm < limits_.warm_up_seconds; ++calls) {
    const Result<double> seconds = measure(call, 1);
    if (!seconds.ok()) return seconds.status();
    warm += *seconds;
    shortest = calls == 0 ? *seconds : std::min(shortest, *seconds);
  }
  Timing timing;
  const double wanted_calls = std::ceil(limits_.sample_seconds / std::max(shortest, 1e-9));
  timing.calls_per_sample = std::max<int64_t>(1, static_cast<int64_t>(wanted_calls));
  std::vector<double> samples;
  double total = 0;
  while (std::ssize(samples) < limits_.max_samples &&
         (std::ssize(samples) < limits_.min_samples || total < limits_.seconds)) {
    const Result<double> seconds = measure(call, timing.calls_per_sample);
    if (!seconds.ok()) return seconds.status();
    total += *seconds;
    samples.push_back(*seconds / static_cast<double>(timing.calls_per_sample));
  }
  timing.sample_seconds = std::move(samples);
  summarise(timing);
  return timing;
}

Result<std::unique_ptr<Timer>> make_timer(Device device) {
  if (device.kind == DeviceKind::cuda) return make_cuda_timer(device.index);
  if (device.kind == DeviceKind::sim) {
    return Status(StatusCode::unsupported,
                  "device: is sim, which keeps no time; wanted cpu or cuda");
  }
  return std::unique_ptr<Timer>(std::make_unique<CpuTimer>());
}

}  // namespace flashcore::bench

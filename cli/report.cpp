#include "cli/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "bench/tensor_set.hpp"
#include "cli/plan_choice.hpp"

namespace flashcore::cli {
namespace {

std::string_view alignment_name(Alignment alignment) {
  switch (alignment) {
    case Alignment::top_left:
      return "top_left";
    case Alignment::bottom_right:
      return "bottom_right";
    case Alignment::given:
      break;
  }
  return "given";
}

std::span<const int64_t> shape_of(const TensorDesc& desc) {
  return {desc.shape.data(), static_cast<size_t>(desc.rank)};
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

std::string rate_text(double flop_a_second) {
  if (flop_a_second >= 1e12) return fmt::format("{:.1f} TFLOP/s", flop_a_second / 1e12);
  return fmt::format("{:.3g} GFLOP/s", flop_a_second / 1e9);
}

std::string tensor_text(const TensorDesc& desc) {
  return fmt::format("{} [{}]", to_string(desc.dtype), fmt::join(shape_of(desc), ", "));
}

std::string options_text(const Problem& problem) {
  std::vector<std::string> parts;
  const bool window = problem.window_left >= 0 || problem.window_right >= 0;
  if (problem.causal) parts.emplace_back("causal");
  if (window)
    parts.push_back(fmt::format("window {},{}", problem.window_left, problem.window_right));
  if (!parts.empty() || problem.alibi_slopes) {
    parts.push_back(fmt::format("{}", alignment_name(problem.alignment)));
  }
  if (problem.causal_offset != 0) parts.push_back(fmt::format("offset {}", problem.causal_offset));
  if (problem.softcap > 0) parts.push_back(fmt::format("softcap {}", problem.softcap));
  if (problem.softmax_scale) parts.push_back(fmt::format("scale {}", *problem.softmax_scale));
  if (problem.dropout_p > 0) parts.push_back(fmt::format("dropout {}", problem.dropout_p));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string problem_text(const Problem& problem) {
  std::vector<std::string> parts;
  bench::for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    if (!bench::is_output(name)) parts.push_back(fmt::format("{} {}", name, tensor_text(desc)));
  });
  if (std::string options = options_text(problem); !options.empty()) parts.push_back(options);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string device_text(const DeviceInfo& device) {
  const bool cpu = device.device.kind == DeviceKind::cpu;
  return fmt::format("{}: {}, {} {}", to_text(device.device),
                     device.name.empty() ? "unknown" : device.name, device.multiprocessors,
                     cpu ? "threads" : "multiprocessors");
}

nlohmann::ordered_json tensor_json(const TensorDesc& desc) {
  const auto rank = static_cast<size_t>(desc.rank);
  return {
      {"dtype", to_string(desc.dtype)},
      {"shape", std::vector(desc.shape.begin(), desc.shape.begin() + static_cast<long>(rank))},
      {"stride", std::vector(desc.stride.begin(), desc.stride.begin() + static_cast<long>(rank))}};
}

nlohmann::ordered_json problem_json(const Problem& problem) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  bench::for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    tensors[std::string(name)] = tensor_json(desc);
  });
  nlohmann::ordered_json out = {{"tensors", tensors},
                                {"causal", problem.causal},
                                {"alignment", alignment_name(problem.alignment)},
                                {"causal_offset", problem.causal_offset},
                                {"window", {problem.window_left, problem.window_right}},
                                {"softcap", problem.softcap},
                                {"softmax_scale", nullptr},
                                {"dropout_p", problem.dropout_p},
                                {"kv_scale_block", problem.kv_scale_block}};
  if (problem.softmax_scale) out["softmax_scale"] = *problem.softmax_scale;
  return out;
}

nlohmann::ordered_json device_json(const DeviceInfo& device) {
  return {{"device", to_text(device.device)},
          {"name", device.name},
          {"compute_capability", device.compute_capability},
          {"multiprocessors", device.multiprocessors},
          {"shared_memory_a_block", device.shared_memory_a_block},
          {"memory_bytes", device.memory_bytes}};
}

bench::GateLimits limits_of(const Problem& problem) {
  const bench::GateLimits in = bench::gate_limits(problem.q.dtype);
  const bench::GateLimits out = bench::gate_limits(problem.o.dtype);
  return out.max_scaled_error > in.max_scaled_error ? out : in;
}

nlohmann::ordered_json verdict_json(const bench::Verdict& verdict, const Problem& problem) {
  const bench::GateLimits limits = limits_of(problem);
  return {{"passed", verdict.passed},
          {"failure", verdict.failure},
          {"max_error", verdict.max_error},
          {"max_scaled_error", verdict.max_scaled_error},
          {"max_scaled_error_limit", limits.max_scaled_error},
          {"relative_error", verdict.relative_error},
          {"relative_error_limit", limits.relative_error},
          {"lse_error", verdict.lse_error},
          {"lse_error_limit", limits.lse_error},
          {"naive_max_error", verdict.naive_max_error},
          {"outlier_fraction", verdict.outlier_fraction}};
}

nlohmann::ordered_json timing_json(const bench::Timing& timing, double flop) {
  return {{"p50_seconds", timing.p50},
          {"p90_seconds", timing.p90},
          {"samples", timing.samples},
          {"calls_a_sample", timing.calls_a_sample},
          {"gflops", flop / timing.p50 / 1e9}};
}

}  // namespace flashcore::cli

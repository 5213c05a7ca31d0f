// flashcore info: the build, and the usable devices.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/evidence/evidence.hpp"
#include "cli/command.hpp"
#include "cli/report.hpp"

namespace flashcore::cli {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// Remarks on the kernels that a plain problem may get on a GPU.
std::vector<std::string> notes_on(const DeviceInfo& device) {
  std::vector<std::string> notes;
  Problem problem;
  problem.q = problem.k = problem.v = problem.o =
      TensorDesc::contiguous(DType::f16, {1, 8, 512, 64});
  PlanOptions options;
  options.device = device.device;
  const Result<std::vector<KernelVerdict>> verdicts = explain(problem, options);
  if (!verdicts.ok()) return notes;
  for (const KernelVerdict& verdict : *verdicts) {
    if (verdict.automatic && !verdict.note.empty()) {
      notes.push_back(verdict.kernel + ": " + verdict.note);
    }
  }
  return notes;
}

Result<ExitCode> execute_info(Session& session) {
  const BuildInfo build = build_info();
  const std::vector<DeviceInfo> found = devices();
  session.line(
      fmt::format("flashcore  {} ({}, {})", build.version, build.compiler, build.build_type));
  const bench::BuiltFrom source = bench::built_from();
  session.line(fmt::format("built      {} of {}{}", source.day,
                           source.commit.empty() ? "an unknown commit" : "commit " + source.commit,
                           source.modified ? ", with changes" : ""));
  session.line(fmt::format("SIMD       {}", build.cpu_target));
  session.line(
      fmt::format("CUDA       {}", build.cuda ? "built for " + build.cuda_targets : "not built"));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DeviceInfo& device : found) {
    std::string text = device_text(device);
    if (device.device.kind != DeviceKind::cpu) {
      text += fmt::format(", compute capability {}.{}, {} KiB shared memory per block",
                          device.compute_capability / 10, device.compute_capability % 10,
                          device.shared_memory_per_block / 1024);
    }
    text += fmt::format(", {:.0f} GiB", static_cast<double>(device.memory_bytes) / kGiB);
    session.line("device     " + text);
    list.push_back(device_json(device));
    const std::vector<std::string> notes = notes_on(device);
    for (const std::string& note : notes) session.line("           " + note);
    list.back()["notes"] = notes;
  }
  if (build.cuda && found.size() == 1) session.line("device     (no usable GPU)");
  session.document({{"status", "ok"},
                    {"version", build.version},
                    {"compiler", build.compiler},
                    {"build_type", build.build_type},
                    {"commit", source.commit},
                    {"modified", source.modified},
                    {"built", source.day},
                    {"cpu_target", build.cpu_target},
                    {"cuda", build.cuda},
                    {"cuda_targets", build.cuda_targets},
                    {"devices", list}});
  return ExitCode::ok;
}

}  // namespace

Command info_command() {
  return {.name = "info",
          .summary = "Show the build and the devices it can use",
          .examples = "  flashcore info\n  flashcore info --json",
          .declare = [](OptionSet&) {},
          .execute = execute_info};
}

}  // namespace flashcore::cli

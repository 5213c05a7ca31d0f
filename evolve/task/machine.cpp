// The properties that a task takes from the machine on which it is created.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/device/known_gpus.hpp"
#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "bench/time/cpu_peak.hpp"
#include "evolve/task/task.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

// Dense 16-bit Tensor Core operations per SM and clock, by compute capability; CUDA C++ Programming
// Guide and the architectures' white papers. An unknown GPU gets the highest value.
double operations_per_clock(int32_t major, int32_t minor) {
  if (major == 8) return minor == 0 ? 2048 : 1024;
  return major == 9 ? 4096 : 8192;
}

// Bytes per clock between L2 and one SM.
constexpr double kL2BytesPerClock = 64;

void describe_cpu(Task& task) {
  const bool is_c = task.language == "c";
  task.compiler = {is_c ? "gcc" : "g++", is_c ? "-std=gnu11" : "-std=gnu++20", "-O3",
                   "-march=native"};
  if (!is_c) task.compiler.insert(task.compiler.end(), {"-fno-exceptions", "-fno-rtti"});
  const DeviceInfo cpu = devices().front();
  const bench::CpuPeak peak = bench::measure_cpu_peak(1, 0.2, true);
  task.device = {{"kind", "cpu"},
                 {"name", cpu.name},
                 {"instructions", build_info().cpu_target},
                 {"threads", 1},
                 {"peak", peak.what},
                 {"peak_flop_per_second", std::round(peak.flop_per_second)}};
}

// Describes this machine's GPU.
Result<bench::KnownGpu> ask_gpu(const std::string& gpu_runner, std::string& name) {
  const Result<bench::ChildOutput> said =
      bench::run_child({gpu_runner, "describe"}, {}, "", {60, 10000});
  if (!said.ok()) return said.status();
  std::map<std::string, std::string> facts;
  std::istringstream lines(said->text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) facts[line.substr(0, space)] = line.substr(space + 1);
  }
  if (said->exit_status != 0 || facts.size() < 7) {
    return unsupported(
        "GPU: {}, wanted one for a task in CUDA, or --gpu with the name of the one that it is for",
        bench::printable(facts["error"].empty() ? "it is not described" : facts["error"]));
  }
  const auto number = [&](const char* fact) {
    return static_cast<int32_t>(std::strtoll(facts[fact].c_str(), nullptr, 10));
  };
  constexpr double kKhzOfMhz = 1000;
  name = bench::printable(facts["name"]);
  return bench::KnownGpu{
      .name = name,
      .compute_capability = 10 * number("compute_major") + number("compute_minor"),
      .multiprocessors = number("multiprocessors"),
      .highest_clock_mhz = number("clock_khz") / kKhzOfMhz,
      .l2_bytes = number("l2_bytes"),
      .shared_memory_per_block = number("shared_bytes_per_block")};
}

void describe_gpu(Task& task, const bench::KnownGpu& gpu) {
  const int32_t major = gpu.compute_capability / 10, minor = gpu.compute_capability % 10;
  const double multiprocessors = gpu.multiprocessors, clock = 1e6 * gpu.highest_clock_mhz;
  task.device = {
      {"kind", "gpu"},
      {"name", gpu.name},
      {"compute_capability", fmt::format("{}.{}", major, minor)},
      {"multiprocessors", gpu.multiprocessors},
      {"highest_clock", clock},
      {"l2_bytes", gpu.l2_bytes},
      {"shared_bytes_per_block", gpu.shared_memory_per_block},
      {"peak", fmt::format("16-bit Tensor Cores at {:.3g} GHz", clock / 1e9)},
      {"peak_flop_per_second", multiprocessors * clock * operations_per_clock(major, minor)},
      {"peak_l2_bytes_per_second", multiprocessors * clock * kL2BytesPerClock}};
  task.compiler = {"nvcc",
                   "-std=c++20",
                   "-O3",
                   fmt::format("-arch=sm_{}{}{}", major, minor, major >= 9 ? "a" : ""),
                   "--expt-relaxed-constexpr",
                   "-cubin",
                   "-Xptxas=-v",
                   fmt::format("-DHEAD_DIM={}", task.shapes.front().head_dim),
                   fmt::format("-DCAUSAL={}", task.causal ? 1 : 0)};
  task.budgets.object_bytes = 4 << 20;
  task.budgets.compile_seconds = 60;
  task.timing.sample_seconds = 1e-3;
}

}  // namespace

Status describe_machine(Task& task, const std::string& gpu_runner, const bench::KnownGpu* gpu) {
  if (!task.is_gpu()) {
    describe_cpu(task);
  } else if (gpu != nullptr) {
    describe_gpu(task, *gpu);
  } else {
    std::string name;
    const Result<bench::KnownGpu> here = ask_gpu(gpu_runner, name);
    if (!here.ok()) return here.status();
    describe_gpu(task, *here);
  }
  task.peak_flop_per_second = task.device["peak_flop_per_second"];
  return {};
}

}  // namespace flashcore::evolve

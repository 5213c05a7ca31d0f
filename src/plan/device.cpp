#include "plan/device.hpp"

#include <unistd.h>

#include <fstream>
#include <string>

#include "cpu/parallel.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace

DeviceInfo cpu_device() {
  DeviceInfo info;
  info.device = {DeviceKind::cpu, 0};
  static const std::string name = cpu_name();  // calls without a plan ask every time
  info.name = name;
  info.multiprocessors = cpu::hardware_threads();
  info.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return info;
}

const char* name_of(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return "cpu";
  return kind == DeviceKind::cuda ? "cuda" : "sim";
}

Result<DeviceInfo> find_device(const Device& device) {
  if (device.kind == DeviceKind::cpu) {
    if (device.index != 0) return invalid("device: CPU index is {}, wanted 0", device.index);
    return cpu_device();
  }
  if (device.kind != DeviceKind::cuda && device.kind != DeviceKind::sim) {
    return invalid("device: kind is {}, wanted cpu (0), cuda (1) or sim (2)",
                   static_cast<int32_t>(device.kind));
  }
  size_t gpus = 0;  // number of GPUs of this kind
  for (const DeviceInfo& gpu : cuda_devices()) {
    if (gpu.device.kind != device.kind) continue;
    ++gpus;
    if (gpu.device.index == device.index) return gpu;
  }
  const bool simulated = device.kind == DeviceKind::sim;
  if (gpus == 0 && simulated) {
    return unsupported("device: is sim:{}, wanted a build with -DFLASHCORE_SIMULATOR=ON for that",
                       device.index);
  }
  if (gpus == 0) {
    return unsupported("device: is cuda:{}, but there is no usable GPU{}", device.index,
                       build_info().cuda ? "" : " in a build without CUDA");
  }
  return invalid("device: is {}:{}, wanted an index from 0 to {}", name_of(device.kind),
                 device.index, gpus - 1);
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all = {cpu_device()};
  for (DeviceInfo& device : cuda_devices()) all.push_back(std::move(device));
  return all;
}

}  // namespace flashcore

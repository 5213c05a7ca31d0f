#include "plan/device.hpp"

#include <unistd.h>

#include <fstream>
#include <string>

#include "cpu/parallel.hpp"

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
  info.name = cpu_name();
  info.multiprocessors = cpu::hardware_threads();
  info.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return info;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all = {cpu_device()};
  for (DeviceInfo& device : cuda_devices()) all.push_back(std::move(device));
  return all;
}

}  // namespace flashcore

#include "bench/process/resident.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace flashcore::bench {
namespace {

// A field of /proc/self/status in bytes; 0 if it is not there.
int64_t status_bytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return 1024 * std::atoll(line.c_str() + field.size() + 1);
  }
  return 0;
}

}  // namespace

ResidentPeak::ResidentPeak() {
  std::ofstream("/proc/self/clear_refs") << 5;  // restarts VmHWM
  before_ = status_bytes("VmRSS");
}

int64_t ResidentPeak::growth() const {
  return std::max<int64_t>(status_bytes("VmHWM") - before_, 0);
}

}  // namespace flashcore::bench

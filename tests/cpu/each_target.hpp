// Iterates over the instruction sets of this machine, unless FLASHCORE_CPU_TARGET names one.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "cpu/target.hpp"

namespace flashcore {

// The instruction sets for parametrised tests: all, or with FLASHCORE_TEST_TARGETS=best the best
// one, as under sanitizers in short runs.
inline std::span<const cpu::Target> tested_targets() {
  const char* const wanted = std::getenv("FLASHCORE_TEST_TARGETS");
  const auto all = cpu::supported_targets();
  return wanted != nullptr && std::string(wanted) == "best" ? all.last(1) : all;
}

class EachTarget {
 public:
  EachTarget() {
    const char* const named = std::getenv("FLASHCORE_CPU_TARGET");
    chosen_by_caller_ = named != nullptr && *named != '\0';
  }
  ~EachTarget() {
    if (!chosen_by_caller_) unsetenv("FLASHCORE_CPU_TARGET");
  }
  EachTarget(const EachTarget&) = delete;
  EachTarget& operator=(const EachTarget&) = delete;

  // Makes later plans use target number n, counted from the best one, modulo their number. Returns
  // text for a failure message.
  std::string use(uint64_t n) {
    const auto targets = cpu::supported_targets();
    if (!chosen_by_caller_ && !targets.empty()) {
      const size_t from_best = static_cast<size_t>(n % targets.size());
      const std::string name(cpu::to_string(targets[targets.size() - 1 - from_best]));
      setenv("FLASHCORE_CPU_TARGET", name.c_str(), 1);
    }
    return std::string("FLASHCORE_CPU_TARGET=") + std::string(cpu::to_string(cpu::chosen_target()));
  }

 private:
  bool chosen_by_caller_ = false;
};

}  // namespace flashcore

// What calls without a plan have in common, and share with plans: the options that count, the device, and
// memory that there is not.
#pragma once

#include <cstdint>
#include <new>

#include "flashcore/flashcore.hpp"
#include "kernel/kernel.hpp"
#include "problem/status.hpp"

namespace flashcore {

inline constexpr int32_t kMostThreads = 4096;

// The device and the threads that options ask for; plan.cpp has it.
Result<PlanContext> resolve_context(const PlanOptions& options);

inline Status check_cpu_call(const char* name, const PlanOptions& options) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    return invalid("threads: is {}, wanted 0 (all) to {}", options.threads, kMostThreads);
  }
  if (options.device.kind == DeviceKind::cpu && options.device.index != 0) {
    return invalid("device: CPU index is {}, wanted 0", options.device.index);
  }
  if (options.device.kind != DeviceKind::cpu) {
    return unsupported("device: {} has no kernel for a GPU yet, wanted the CPU", name);
  }
  return {};
}

template <class Run>
Status without_exceptions(const Run& run) {
  try {
    run();
    return {};
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "memory: the host has none left for this run"};
  }
}

}  // namespace flashcore

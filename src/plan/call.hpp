// Code that calls without a plan share with each other and with plans: the options that they use,
// the device, and running out of memory.
#pragma once

#include <cstdint>
#include <new>

#include "flashcore/flashcore.hpp"
#include "kernel/kernel.hpp"

namespace flashcore {

inline constexpr int32_t kMostThreads = 4096;

// Resolves the device and the threads of the options; defined in plan.cpp.
Result<PlanContext> resolve_context(const PlanOptions& options);

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

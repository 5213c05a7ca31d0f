// What calls without a plan have in common, and share with plans: the options that count, the device, and
// memory that there is not.
#pragma once

#include <cstdint>
#include <new>

#include "flashcore/flashcore.hpp"
#include "kernel/kernel.hpp"

namespace flashcore {

inline constexpr int32_t kMostThreads = 4096;

// The device and the threads that options ask for; plan.cpp has it.
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

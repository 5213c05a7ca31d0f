// Runs small kernels under several schedules, and checks which faults are reported.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/global_memory.hpp"
#include "engine/launch.hpp"

namespace flashcore::sim {

// In order and shuffled, with completions at each extreme and in between.
inline std::vector<Policy> policies() {
  std::vector<Policy> all;
  for (const Completion completion : {Completion::late, Completion::early, Completion::random}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      all.push_back({.completion = completion, .seed = seed});
    }
  }
  return all;
}

inline std::string text_of(const Policy& policy) {
  return "completion " + std::to_string(static_cast<int>(policy.completion)) + ", seed " +
         std::to_string(policy.seed);
}

inline Findings run(const LaunchOptions& options, const Policy& policy,
                    const std::function<void()>& kernel) {
  Simulator simulator(policy);
  simulator.launch(options, kernel);
  simulator.synchronize();
  return simulator.findings();
}

// The fault is reported under every policy.
inline void expect_fault(Fault fault, const LaunchOptions& options,
                         const std::function<void()>& kernel) {
  for (const Policy& policy : policies()) {
    const Findings findings = run(options, policy, kernel);
    EXPECT_TRUE(findings.has(fault))
        << name(fault) << " was not found with " << text_of(policy) << "; found:\n"
        << findings.text();
  }
}

// One of these faults is reported under every policy: which one depends on the order.
inline void expect_one_of(const std::vector<Fault>& faults, const LaunchOptions& options,
                          const std::function<void()>& kernel) {
  for (const Policy& policy : policies()) {
    const Findings findings = run(options, policy, kernel);
    bool found = false;
    for (const Fault fault : faults) found = found || findings.has(fault);
    EXPECT_TRUE(found) << "wanted " << name(faults[0]) << " or the like with " << text_of(policy)
                       << "; found:\n"
                       << findings.text();
  }
}

// The fault is reported under some policies: it needs a certain order to have an effect.
inline void expect_fault_in_some_order(Fault fault, const LaunchOptions& options,
                                       const std::function<void()>& kernel) {
  int found = 0;
  for (const Policy& policy : policies()) found += run(options, policy, kernel).has(fault) ? 1 : 0;
  EXPECT_GT(found, 0) << name(fault);
}

inline void expect_clean(const LaunchOptions& options, const std::function<void()>& kernel) {
  for (const Policy& policy : policies()) {
    EXPECT_EQ(run(options, policy, kernel).text(), "") << text_of(policy);
  }
}

// Runs a kernel with the fault, and its twin without.
template <class Kernel>
void expect_fault_only_in_first(Fault fault, const LaunchOptions& options, Kernel kernel) {
  expect_fault(fault, options, [&] { kernel(true); });
  expect_clean(options, [&] { kernel(false); });
}

// A load that is performed even if its value is unused.
template <class T>
T load(const T& x) {
  return *static_cast<const volatile T*>(&x);
}

template <class T>
T* shared_array() {
  return reinterpret_cast<T*>(dynamic_shared());
}

}  // namespace flashcore::sim

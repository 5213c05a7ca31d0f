// Runs problems and judges their outputs, by a reference that is computed once for all runs of a problem.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "bench/cases/random_problem.hpp"
#include "bench/gate/gates.hpp"
#include "tests/cpu/each_target.hpp"
#include "tests/cpu/run_on_host.hpp"

namespace flashcore::testing {

inline PlanOptions on_kernel(const std::string& kernel, int threads = 2) {
  PlanOptions options;
  options.kernel = kernel;
  options.threads = threads;
  return options;
}

// Runs the problem, over outputs that were poisoned, and expects that it passes the gates.
inline void expect_passes(bench::HostProblem& host, const bench::Reference& reference,
                          const PlanOptions& options) {
  bench::poison_outputs(host);
  const Status status = run_on_host(host, options);
  ASSERT_TRUE(status.ok()) << status.message();
  const bench::Verdict verdict = bench::judge(host, reference);
  EXPECT_TRUE(verdict.passed) << verdict.failure << " for " << bench::describe(host.problem);
}

inline void expect_passes(bench::HostProblem& host, const PlanOptions& options) {
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  expect_passes(host, *reference, options);
}

// body() with each instruction set of this machine.
template <class Body>
void on_every_target(const Body& body) {
  for (const cpu::Target target : tested_targets()) {
    const std::string name(cpu::to_string(target));
    SCOPED_TRACE(name);
    setenv("FLASHCORE_CPU_TARGET", name.c_str(), 1);
    ASSERT_EQ(cpu::chosen_target(), target);
    body();
  }
  unsetenv("FLASHCORE_CPU_TARGET");
}

// The SIMD kernel on each of them. `limits_of`: of another type than the inputs'.
inline void expect_passes_on_every_target(bench::HostProblem host, int threads = 2,
                                          std::optional<DType> limits_of = {}) {
  Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  if (limits_of) reference->limits = bench::gate_limits(*limits_of);
  on_every_target([&] { expect_passes(host, *reference, on_kernel("cpu_simd", threads)); });
}

}  // namespace flashcore::testing

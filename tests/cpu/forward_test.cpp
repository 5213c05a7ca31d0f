// The SIMD backend against the gates, on every instruction set that this machine has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bench/gates.hpp"
#include "bench/random_problem.hpp"
#include "cpu/target.hpp"
#include "tests/cpu/run_on_host.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using testing::run_on_host;

PlanOptions simd_options(int threads = 2) {
  PlanOptions options;
  options.kernel = "cpu_simd";
  options.threads = threads;
  return options;
}

// Forces one instruction set for the life of a test.
class EveryTarget : public ::testing::TestWithParam<cpu::Target> {
 protected:
  void SetUp() override {
    setenv("FLASHCORE_CPU_TARGET", std::string(cpu::to_string(GetParam())).c_str(), 1);
    ASSERT_EQ(cpu::chosen_target(), GetParam());
  }
  void TearDown() override { unsetenv("FLASHCORE_CPU_TARGET"); }
};

INSTANTIATE_TEST_SUITE_P(Cpu, EveryTarget,
                         ::testing::ValuesIn(cpu::supported_targets().begin(),
                                             cpu::supported_targets().end()),
                         [](const auto& target) {
                           return std::string(cpu::to_string(target.param));
                         });

void expect_passes(HostProblem& host, int threads = 2) {
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  const Status status = run_on_host(host, simd_options(threads));
  ASSERT_TRUE(status.ok()) << status.message();
  const bench::Verdict verdict = bench::judge(host, *reference);
  EXPECT_TRUE(verdict.passed) << verdict.failure << " for " << bench::describe(host.problem);
}

struct Shape {
  int64_t batch = 2, heads_q = 8, heads_kv = 8, seqlen_q = 128, seqlen_kv = 128, head_dim = 64;
};

Problem problem_of(const Shape& s, DType dtype) {
  const bool fp8 = dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
  Problem p;
  p.q = TensorDesc::contiguous(dtype, {s.batch, s.heads_q, s.seqlen_q, s.head_dim});
  p.k = p.v = TensorDesc::contiguous(dtype, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim});
  p.o = p.q;
  if (fp8) p.o.dtype = DType::f32;
  p.lse = TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  return p;
}

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2};

TEST_P(EveryTarget, PassesTheGatesOnTheStandardShapes) {
  for (const DType dtype : kDTypes) {
    for (const bool causal : {false, true}) {
      for (const Shape& shape : {Shape{}, Shape{.batch = 1, .seqlen_q = 512, .seqlen_kv = 512}}) {
        Problem problem = problem_of(shape, dtype);
        problem.causal = causal;
        HostProblem host = bench::make_host_problem(problem, 0);
        expect_passes(host);
      }
    }
  }
}

TEST_P(EveryTarget, PassesTheGatesOnRandomProblems) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    HostProblem host = bench::random_problem(seed);
    expect_passes(host);
    if (HasFatalFailure() || HasNonfatalFailure()) break;
  }
}

}  // namespace
}  // namespace flashcore

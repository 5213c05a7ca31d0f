// Hard scores (bench/cases/score_cases.hpp) on the CPU kernels.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/cases/fp8_cases.hpp"
#include "bench/cases/score_cases.hpp"
#include "tests/cpu/each_target.hpp"
#include "tests/cpu/judge.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using bench::ScoreCase;
using testing::expect_passes, testing::on_kernel;

// Runs on the best instruction set, and alternates between the others.
TEST(HardScores, OnTheSimdKernel) {
  EachTarget targets;
  uint64_t n = 0;
  for (const ScoreCase& one : problems_of(bench::score_cases())) {
    HostProblem host = bench::fill(one);
    const Result<bench::Reference> reference = bench::score_reference(one, host);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    for (const uint64_t target : {uint64_t{0}, ++n}) {
      SCOPED_TRACE(one.name + ", " + targets.use(target));
      expect_passes(host, *reference, on_kernel("cpu_simd"));
    }
  }
}

// Probabilities stay in fp32 there, so data that is hard for e4m3 is not hard: the limits of fp32
// hold for both fp8 types, and O in fp8 is the same, rounded.
TEST(HardScores, OfFp8AreAsFp32OnTheSimdKernel) {
  EachTarget targets;
  uint64_t n = 0;
  for (ScoreCase& one : problems_of(bench::fp8_cases())) {
    for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
      for (TensorDesc* const input : {&one.problem.q, &one.problem.k, &one.problem.v}) {
        input->dtype = dtype;
      }
      one.problem.o.dtype = n % 2 == 0 ? DType::f32 : dtype;
      one.problem.amax_o = one.problem.amax_s = TensorDesc::contiguous(DType::f32, {1, 2});
      HostProblem host = bench::fill(one);
      Result<bench::Reference> reference = bench::score_reference(one, host);
      ASSERT_TRUE(reference.ok()) << reference.status().message();
      reference->limits = bench::gate_limits(DType::f32);
      SCOPED_TRACE(one.name + ", " + std::string(to_string(dtype)) + ", " + targets.use(n++));
      expect_passes(host, *reference, on_kernel("cpu_simd"));
    }
  }
}

// Its scores and probabilities are bf16: wide enough, except for scores that need more than 8 bits,
// and therefore for the LSE.
TEST(HardScores, OnTheNaiveKernel) {
  int64_t passed = 0;
  for (ScoreCase& one : problems_of(bench::score_cases())) {
    if (!one.name.starts_with("large/bf16/") && !one.name.starts_with("bias/bf16/bf16/")) {
      continue;
    }
    if (one.name.find("/normal/") != std::string::npos) continue;
    if (one.name.find("/scale/") != std::string::npos) continue;
    if (one.name.find("/falling/largest") != std::string::npos) continue;
    one.problem.lse.reset();
    HostProblem host = bench::fill(one);
    const Result<bench::Reference> reference = bench::score_reference(one, host);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    SCOPED_TRACE(one.name);
    expect_passes(host, *reference, on_kernel("naive"));
    ++passed;
  }
  EXPECT_GT(passed, kSanitized ? 10 : 50);
}

}  // namespace
}  // namespace flashcore

// The SIMD backend's gradients: random problems over all options on every instruction set, against
// the gates; the same bits for any number of threads; only outputs are written.
#include "problem/backward.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "bench/cases/random_backward.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "tests/cpu/judge.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostBackward;
using bench::HostTensor;

Status run(HostBackward& host, int threads) {
  const Result<Plan> plan = make_backward_plan(host.forward.problem, host.gradients,
                                               testing::on_kernel("cpu_simd", threads));
  if (!plan.ok()) return plan.status();
  bench::poison_outputs(host);
  return testing::run_between_canaries(*plan, host.arguments());
}

void expect_same(const HostBackward& got, const HostBackward& want, bool outputs,
                 const char* when) {
  for (const auto& [name, tensor] : want.tensors) {
    if (outputs || !bench::is_gradient_output(name)) {
      EXPECT_TRUE(got.at(name).same_elements(tensor)) << name << " differs " << when;
    }
  }
  for (const auto& [name, tensor] : want.forward.tensors) {
    EXPECT_TRUE(got.forward.at(name).same_elements(tensor)) << name << " was written " << when;
  }
}

// Passes the gates on these of the machine's instruction sets.
void check(const HostBackward& original, std::initializer_list<uint64_t> which) {
  HostBackward host = original;
  const Result<bench::GradientReferences> reference = bench::compute_reference(host, 0, true);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  EachTarget targets;
  for (const uint64_t target : which) {
    SCOPED_TRACE(targets.use(target));
    Status status = run(host, 1);
    ASSERT_TRUE(status.ok()) << status.message();
    const bench::Verdict verdict = bench::judge(host, *reference);
    EXPECT_TRUE(verdict.passed) << verdict.failure;
    expect_same(host, original, false, "by a run");
    HostBackward again = host;
    for (const int threads : {1, 3}) {
      status = run(again, threads);
      ASSERT_TRUE(status.ok()) << status.message();
      expect_same(again, host, true, threads == 1 ? "in a second run" : "with three threads");
    }
  }
}

void check_random(uint64_t first, uint64_t count, const bench::RandomSpace& space) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const bench::RandomBackward draw(seed, space);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " +
                 bench::describe(draw.problem(), draw.gradients()));
    const Result<HostBackward> host = draw.fill();
    ASSERT_TRUE(host.ok()) << host.status().message();
    ASSERT_NO_FATAL_FAILURE(check(*host, {seed}));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(CpuBackward, RandomProblemsPassTheGates) { check_random(0, problem_count(200), {}); }

// Several blocks of keys, divided into several parts.
TEST(CpuBackward, LongProblemsPassTheGates) {
  bench::RandomSpace space;
  space.largest_seqlen = 1500;
  space.largest_head_dim = 72;
  check_random(1000, problem_count(12), space);
}

Problem plain(int64_t seqlen) {
  Problem problem;
  problem.q = problem.k = problem.v = problem.o =
      TensorDesc::contiguous(DType::f32, {1, 2, seqlen, 64});
  problem.lse = TensorDesc::contiguous(DType::f32, {1, 2, seqlen});
  return problem;
}

// Every other row sees no key: because of a mask, or of an infinite slope whose diagonal is past
// the keys. A sink of +inf or NaN is the LSE of such rows and does not affect their other results;
// its own gradient is the LSE's.
TEST(CpuBackward, SinksThatAreNoNumberTouchOnlyRowsThatSeeAKey) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const bool by_slope : {false, true}) {
    Problem problem = plain(6);
    problem.q = problem.o = TensorDesc::contiguous(DType::f32, {1, 4, 6, 64});
    problem.lse = TensorDesc::contiguous(DType::f32, {1, 4, 6});
    problem.sinks = TensorDesc::contiguous(DType::f32, {4});
    if (by_slope) {
      problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {4});
      problem.alignment = Alignment::given;
      problem.causal_offset = 7;
    } else {
      problem.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 6, 1});
    }
    for (const bool all : {true, false}) {
      if (by_slope && !all) continue;
      bench::HostProblem forward = bench::make_host_problem(problem, 3);
      if (by_slope) {
        forward.at("alibi_slopes").fill([] { return kInf; });
      } else {
        forward.at("mask").fill([&, n = 0]() mutable { return all || n++ % 2 == 0 ? 0.0 : 1.0; });
      }
      forward.at("sinks").fill([n = 0]() mutable {
        const double sinks[] = {kInf, kNaN, 0.5, -kInf};
        return sinks[n++];
      });
      const Result<HostBackward> host =
          bench::make_host_backward(std::move(forward), bench::gradients_of(problem, true), 3);
      ASSERT_TRUE(host.ok()) << host.status().message();
      ASSERT_NO_FATAL_FAILURE(check(*host, {0, 1, 2, 3, 4, 5, 6, 7}));
      HostBackward one = *host;
      ASSERT_TRUE(run(one, 1).ok());
      for (int64_t h = 0; all && h < 4; ++h) {
        double want = 0;
        for (int64_t i = 0; i < 6; ++i) want += one.at("d_lse").get(h * 6 + i);
        EXPECT_NEAR(one.at("d_sinks").get(h), want, 1e-5) << h;
        for (int64_t d = 0; d < 6 * 64; ++d) EXPECT_EQ(one.at("dq").get(h * 384 + d), 0);
      }
    }
  }
}

TEST(CpuBackward, WorkspaceIsLinearInTheSequence) {
  const PlanOptions options = testing::on_kernel("cpu_simd", 1);
  const auto bytes = [&](int64_t seqlen) {
    const Problem problem = plain(seqlen);
    const Result<Plan> plan =
        make_backward_plan(problem, bench::gradients_of(problem, false), options);
    return static_cast<double>(plan->workspace_bytes());
  };
  EXPECT_LT(bytes(64 * 1024), 2.1 * bytes(32 * 1024));
}

TEST(CpuBackward, RefusesWhatItDoesNotCompute) {
  const Problem base = plain(8);
  const PlanOptions options = testing::on_kernel("cpu_simd");
  const auto refusal = [&](const auto& bend) {
    Problem problem = base;
    Gradients gradients = bench::gradients_of(problem, true);
    bend(problem, gradients);
    const Status status = make_backward_plan(problem, gradients, options).status();
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    return status.message();
  };
  EXPECT_EQ(refusal([](Problem& p, Gradients& g) { p.o.dtype = g.d_o.dtype = DType::f64; }),
            "kernel cpu_simd: o: dtype is f64, wanted f16, bf16, f32, f8e4m3 or f8e5m2");
  EXPECT_EQ(refusal([](Problem& p, Gradients&) { p.lse->dtype = DType::f64; }),
            "kernel cpu_simd: lse: dtype is f64, wanted f32");
  EXPECT_EQ(refusal([](Problem&, Gradients& g) { g.d_lse->dtype = DType::f64; }),
            "kernel cpu_simd: d_lse: dtype is f64, wanted f32");
  EXPECT_EQ(refusal([](Problem&, Gradients& g) { g.dk.dtype = DType::f64; }),
            "kernel cpu_simd: dk: dtype is f64, wanted at most 32 bits");
}

}  // namespace
}  // namespace flashcore

// CUDA kernels on scores of every size that fp32 has, against the fp64 reference.
//
// One column of Q and K is not 0, so a score is a single product: exact, and what a row's weights
// are is decided however large the scores are. Rows go from uniform weights to one key alone, with
// scores of either sign from 1e-3 to past 1e38; every one of them is to be right.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "bench/cases/score_cases.hpp"
#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"
#include "tests/cuda/device/device_tensors.hpp"
#include "tests/cuda/device/gpu.hpp"

namespace flashcore {
namespace {

class LargeScores : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!runs_here(kernel())) GTEST_SKIP() << "no GPU that " << kernel() << " runs on";
  }

  static std::string kernel() { return GetParam(); }
  static std::vector<DType> types() {
    if (kernel() == "forward_sm80_throughput:f32") return {DType::f32};
    if (kernel() == "forward_sm80_throughput:split_kv")
      return {DType::f16, DType::bf16, DType::f32};
    return {DType::f16, DType::bf16};
  }
};
INSTANTIATE_TEST_SUITE_P(Hopper, LargeScores,
                         testing::Values("forward_sm90_throughput",
                                         "forward_sm90_throughput:192x128",
                                         "forward_sm90_throughput:64x128",
                                         "forward_sm90_throughput:64x64", "forward_sm90_latency",
                                         "forward_sm90_latency:wide"));
constexpr const char* kAmpere[] = {"forward_sm80_throughput", "forward_sm80_throughput:split_kv",
                                   "forward_sm80_throughput:f32"};
INSTANTIATE_TEST_SUITE_P(Ampere, LargeScores, testing::ValuesIn(kAmpere));
INSTANTIATE_TEST_SUITE_P(AmpereSmall, LargeScores, testing::Values("forward_sm80_latency"));
class LargeSoftcaps : public LargeScores {};
INSTANTIATE_TEST_SUITE_P(Hopper, LargeSoftcaps, testing::Values("forward_sm90_throughput"));
INSTANTIATE_TEST_SUITE_P(Ampere, LargeSoftcaps, testing::ValuesIn(kAmpere));
class ScoreCases : public LargeScores {};
INSTANTIATE_TEST_SUITE_P(Ampere, ScoreCases, testing::ValuesIn(kAmpere));
INSTANTIATE_TEST_SUITE_P(AmpereSmall, ScoreCases, testing::Values("forward_sm80_latency"));
class SteepSlopes : public LargeScores {};
INSTANTIATE_TEST_SUITE_P(Ampere, SteepSlopes, testing::Values("forward_sm80_throughput"));

struct Shape {
  int64_t queries, keys, head_dim;
  bool causal;
};
constexpr Shape kShapes[] = {{64, 1, 64, false},    {70, 77, 64, false},   {130, 300, 128, true},
                             {200, 200, 64, true},  {64, 700, 96, false},  {300, 650, 128, false},
                             {200, 650, 256, true}, {450, 300, 128, true}, {33, 1100, 64, true}};
constexpr int64_t kHeads = 2;

Problem problem_of(const Shape& shape, DType dtype, double scale) {
  Problem p;
  p.q = TensorDesc::contiguous(dtype, {1, kHeads, shape.queries, shape.head_dim});
  p.k = p.v = TensorDesc::contiguous(dtype, {1, kHeads, shape.keys, shape.head_dim});
  p.o = p.q;
  p.lse = TensorDesc::contiguous(DType::f32, {1, kHeads, shape.queries});
  p.causal = shape.causal;
  p.softmax_scale = static_cast<float>(scale);
  return p;
}

// Fills Q or K: column 0 of each row by `value`, the rest with 0.
void set_rows(bench::HostTensor& tensor, int64_t head_dim, const std::function<double()>& value) {
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, i % head_dim == 0 ? value() : 0);
}

// Each output by itself, within the gates' largest scaled error; an infinite LSE exactly.
void expect_close(const bench::HostTensor& got, const std::vector<double>& want, double limit,
                  const char* name, int64_t row_elements) {
  int shown = 0;
  for (size_t i = 0; i < want.size() && shown < 3; ++i) {
    const double value = got.get(static_cast<int64_t>(i)), right = want[i];
    const bool same = std::isinf(right)
                          ? value == right
                          : std::abs(value - right) <= limit * std::max(1.0, std::abs(right));
    if (same) continue;
    ++shown;
    ADD_FAILURE() << fmt::format("{}: row {}, element {}: {}, wanted {}", name,
                                 static_cast<int64_t>(i) / row_elements,
                                 static_cast<int64_t>(i) % row_elements, value, right);
  }
}

// Runs and compares the kernel if it takes the problem, and returns whether it does.
bool check(bench::HostProblem& host, const char* kernel) {
  const Result<Plan> plan = make_plan(host.problem, on_gpu(kernel));
  if (!plan.ok()) return false;
  const Result<bench::Reference> reference = bench::compute_reference(host);
  EXPECT_TRUE(reference.ok()) << reference.status().message();
  run_once(*plan, host);
  const bench::GateLimits limits = bench::gate_limits(host.problem.q.dtype);
  expect_close(host.at("o"), reference->o, limits.max_scaled_error, "o", host.problem.o.shape[3]);
  expect_close(host.at("lse"), reference->lse, limits.lse_error, "lse", 1);
  return true;
}

// One problem for each shape, type and scale; at least one in three is to be the kernel's.
void for_each_problem(const char* kernel, const std::vector<DType>& types,
                      const std::vector<double>& scales,
                      const std::function<void(bench::HostProblem&, std::mt19937_64&)>& fill) {
  int problems = 0, taken = 0;
  std::mt19937_64 random(20);
  for (const Shape& shape : kShapes) {
    for (const DType dtype : types) {
      for (const double scale : scales) {
        SCOPED_TRACE(fmt::format("{} queries, {} keys, head_dim {}, causal {}, {}, scale {}",
                                 shape.queries, shape.keys, shape.head_dim, shape.causal,
                                 to_string(dtype), scale));
        bench::HostProblem host =
            bench::make_host_problem(problem_of(shape, dtype, scale), 40 + problems++);
        fill(host, random);
        taken += static_cast<int>(check(host, kernel));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(3 * taken, problems);
}

// 2^-powers .. 2^powers, of either sign, with bits so few that products are exact in every type.
std::function<double()> powers_of(std::mt19937_64& random, double powers) {
  return [&random, powers] {
    std::uniform_real_distribution<double> power(-powers, powers);
    const double size = std::exp2(power(random));
    const double unit = std::exp2(std::floor(std::log2(size)) - 7);
    return std::round(size / unit) * unit * (random() % 2 == 0 ? 1 : -1);
  };
}

// Every row has another size of scores; keys differ by a factor of 16 and in sign.
TEST_P(LargeScores, RowsOfEverySize) {
  for_each_problem(GetParam(), types(), {0.125, 1, 37, 1e-4}, [](auto& host, auto& random) {
    const bool wide = host.problem.q.dtype != DType::f16;
    const int64_t head_dim = host.problem.q.shape[3];
    set_rows(host.at("q"), head_dim, powers_of(random, wide ? 112 : 14));
    set_rows(host.at("k"), head_dim, powers_of(random, 2));
  });
}

// The sizes that fp16 has, and fp32's largest: every key of a row has the same score.
TEST_P(LargeScores, EqualKeys) {
  for (const double key : {1.0, -1.0, 30000.0, -30000.0}) {
    for_each_problem(GetParam(), types(), {0.125, 1, 1000}, [key](auto& host, auto& random) {
      const bool wide = host.problem.q.dtype != DType::f16;
      const int64_t head_dim = host.problem.q.shape[3];
      set_rows(host.at("q"), head_dim, powers_of(random, wide ? 100 : 15));
      set_rows(host.at("k"), head_dim, [key] { return key; });
    });
  }
  for_each_problem(GetParam(), types(), {1}, [](auto& host, auto&) {
    const bool wide = host.problem.q.dtype != DType::f16;
    const int64_t head_dim = host.problem.q.shape[3];
    bool positive = false;
    set_rows(host.at("q"), head_dim, [&] { return (positive = !positive) ? 49152.0 : -49152.0; });
    set_rows(host.at("k"), head_dim, [&] { return wide ? std::ldexp(1.25, 112) : 49152.0; });
  });
}

// All columns count: the sums of fp32 are off by less than keys differ.
TEST_P(LargeScores, WholeRows) {
  for_each_problem(GetParam(), types(), {0.125, 8}, [](auto& host, auto& random) {
    const int64_t head_dim = host.problem.q.shape[3];
    for (int64_t i = 0; i < host.at("q").elements(); ++i) {
      host.at("q").set(i, 30000.0 * static_cast<double>(i / head_dim % 3 - 1));
    }
    double size = 0;
    for (int64_t i = 0; i < host.at("k").elements(); ++i) {
      if (i % head_dim == 0) size = std::exp2(static_cast<double>(random() % 9) + 6);
      host.at("k").set(i, size);
    }
  });
}

// Some rows of a block are large, others are not; so are blocks of a row's keys.
TEST_P(LargeScores, BlocksOfEverySize) {
  for_each_problem(GetParam(), types(), {0.125, 1}, [](auto& host, auto& random) {
    const int64_t head_dim = host.problem.q.shape[3];
    set_rows(host.at("q"), head_dim, [&] {
      return random() % 3 == 0 ? 2048.0 : random() % 2 == 0 ? 1.0 : -64.0;
    });
    int64_t key = 0;
    set_rows(host.at("k"), head_dim, [&] {
      const int64_t block = key++ / 64;
      const double size = block % 4 == 0 ? -32000 : block % 4 == 1 ? 1 : block % 4 == 2 ? -1e4 : 0;
      return size * (1 + static_cast<double>(random() % 8) / 8);
    });
  });
}

// A sink next to scores of its size: the kernels for few keys take none.
TEST_P(LargeScores, Sinks) {
  for (const double sink : {0x1p30, 0x1p29, -0x1p30, -1e30, 1e30, 3.0}) {
    for (const Shape& shape : kShapes) {
      if (kernel().find("small") != std::string::npos ||
          kernel().find("medium") != std::string::npos) {
        return;
      }
      SCOPED_TRACE(fmt::format("{} queries, {} keys, sink {}", shape.queries, shape.keys, sink));
      Problem p = problem_of(shape, types().front(), 1);
      p.sinks = TensorDesc::contiguous(DType::f32, {kHeads});
      bench::HostProblem host = bench::make_host_problem(p, 77);
      int64_t row = 0;
      set_rows(host.at("q"), shape.head_dim, [&] {
        const int64_t at = row++ % 4;
        return at == 0 ? 0x1p15 : at == 1 ? -0x1p15 : at == 2 ? 0x1p14 : 0;
      });
      set_rows(host.at("k"), shape.head_dim, [] { return 0x1p15; });
      for (int64_t i = 0; i < kHeads; ++i) host.at("sinks").set(i, sink);
      check(host, GetParam());
      if (HasFailure()) return;
    }
  }
}

// N(0, 1) scores, and scores near the cap, for caps from far below to far above them.
TEST_P(LargeSoftcaps, OfEverySize) {
  for (const double cap :
       {1e-30, 1e-3, 1.0, 90.0, 110.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e10, 1e15, 1e20, 1e30}) {
    for_each_problem(GetParam(), types(), {0.125, -0.125},
                     [cap](auto& host, auto&) { host.problem.softcap = static_cast<float>(cap); });
    if (HasFailure()) FAIL() << "cap " << cap;
  }
}

// Scores as large as the cap in some blocks of keys, and far below it in others, decided by one
// product: capped by the polynomial and by the exponential in the same row.
TEST_P(LargeSoftcaps, BesideScoresOfTheirSize) {
  for (const double cap : {20.0, 1e3, 1e5, 1e6, 1e8}) {
    for_each_problem(GetParam(), types(), {1.0, -1.0}, [cap](auto& host, auto& random) {
      host.problem.softcap = static_cast<float>(cap);
      const int64_t head_dim = host.problem.q.shape[3];
      std::uniform_real_distribution<double> size(0.01, 3);
      set_rows(host.at("q"), head_dim, [&] { return std::sqrt(cap) * size(random); });
      int64_t key = 0;
      // Far enough apart for fp32, which has 1e-7 of the score.
      set_rows(host.at("k"), head_dim, [&] {
        const bool near = key++ / 128 % 2 == 0;
        return std::sqrt(cap) * (near ? 1.0 : 0.01) * (random() % 2 == 0 ? 1 : -1);
      });
    });
    if (HasFailure()) FAIL() << "cap " << cap;
  }
}

// Large negative biases, steep slopes, sinks and softcaps with products of every size.
TEST_P(ScoreCases, PassTheirGates) {
  const PlanOptions options = on_gpu(GetParam());
  int taken = 0;
  for (const bench::ScoreCase& one : bench::score_cases()) {
    const Result<Plan> plan = make_plan(one.problem, options);
    if (!plan.ok()) continue;
    ++taken;
    SCOPED_TRACE(one.name);
    bench::HostProblem host = bench::fill(one);
    const Result<bench::Reference> reference = bench::score_reference(one, host);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    run_once(*plan, host);
    const bench::Verdict verdict = bench::judge(host, *reference);
    EXPECT_TRUE(verdict.passed) << verdict.failure;
  }
  EXPECT_GT(taken, 50);
}

// ALiBi leaves a row to a few keys. Two of similar weight and opposite values cancel, and what is
// left has the rounding of both probabilities. The first three missed the gate of 1e-3 (1.24e-3).
TEST_P(SteepSlopes, LeaveNoMoreRoundingThanTheLargestWeightIsWorth) {
  const PlanOptions options = on_gpu(GetParam());
  const bench::RandomSpace long_rows{.largest_seqlen = 400, .largest_head_dim = 256};
  const bench::RandomSpace ordinary{
      .largest_seqlen = 400, .largest_head_dim = 128, .hostile_values = false};
  const auto check_seed = [&](uint64_t seed, const bench::RandomSpace& space) {
    const bench::RandomDraw draw(seed, space);
    const Problem& p = draw.problem();
    if (!p.alibi_slopes || p.q.dtype != DType::f16 || p.o.dtype != p.q.dtype) return false;
    const Result<Plan> plan = make_plan(p, options);
    if (!plan.ok()) return false;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, bench::describe(p)));
    bench::HostProblem host = draw.fill();
    expect_its_gate(options, host);
    return true;
  };
  for (const uint64_t seed : {777003444, 61007501, 61012780}) {
    EXPECT_TRUE(check_seed(seed, long_rows)) << seed;
  }
  int taken = 0;
  for (uint64_t seed = 1000000; taken < 100; ++seed) taken += check_seed(seed, ordinary) ? 1 : 0;
}

}  // namespace
}  // namespace flashcore

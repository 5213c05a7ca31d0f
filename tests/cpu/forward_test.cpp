// The SIMD backend's bits, on every instruction set of this machine: what its gates (gates_test.cpp) do not see.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "cpu/target.hpp"
#include "tests/cpu/forward_problem.hpp"
#include "tests/cpu/judge.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using testing::kInputTypes, testing::problem_of, testing::run_on_host;

PlanOptions simd_options(int threads = 2) { return testing::on_kernel("cpu_simd", threads); }

// Forces one instruction set during a test.
class EveryTarget : public ::testing::TestWithParam<cpu::Target> {
 protected:
  void SetUp() override {
    setenv("FLASHCORE_CPU_TARGET", std::string(cpu::to_string(GetParam())).c_str(), 1);
    ASSERT_EQ(cpu::chosen_target(), GetParam());
  }
  void TearDown() override { unsetenv("FLASHCORE_CPU_TARGET"); }
};

INSTANTIATE_TEST_SUITE_P(Cpu, EveryTarget,
                         ::testing::ValuesIn(tested_targets().begin(), tested_targets().end()),
                         [](const auto& target) {
                           return std::string(cpu::to_string(target.param));
                         });

// O in any type equals the fp32 O, rounded to nearest even: for values of any size, also NaN and infinities.
TEST_P(EveryTarget, RoundsOToAnyType) {
  for (const DType dtype : kInputTypes) {
    Problem problem = problem_of({.batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 33}, dtype);
    problem.o.dtype = DType::f32;
    HostProblem exact = bench::make_host_problem(problem, 3);
    const auto spoil = [](HostProblem& host) {
      bench::HostTensor& v = host.at("v");
      for (int64_t i = 0; i < v.elements(); ++i) {
        v.set(i, v.get(i) * std::exp2(static_cast<double>(i % 64) - 40));
      }
      v.set(60, std::numeric_limits<double>::infinity());
      v.set(61, std::numeric_limits<double>::quiet_NaN());
    };
    spoil(exact);
    ASSERT_TRUE(run_on_host(exact, simd_options()).ok());
    for (const DType o_dtype : kInputTypes) {
      problem.o.dtype = o_dtype;
      HostProblem host = bench::make_host_problem(problem, 3);
      spoil(host);
      ASSERT_TRUE(run_on_host(host, simd_options()).ok());
      bench::HostTensor wanted = host.at("o");
      for (int64_t i = 0; i < wanted.elements(); ++i) {
        wanted.set(i, exact.at("o").get(i));
        const double got = host.at("o").get(i);
        ASSERT_TRUE(got == wanted.get(i) || (std::isnan(got) && std::isnan(wanted.get(i))))
            << exact.at("o").get(i) << " became " << got << " in " << to_string(o_dtype);
      }
    }
  }
}

// NaN or infinite keys and values, one at a time: exactly the rows that attend to one are affected.
TEST_P(EveryTarget, ANaNReachesExactlyTheRowsThatAttendToIt) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const char* const name : {"k", "v"}) {
      for (const double value : {kNaN, kInf, -kInf}) {
        if (name[0] == 'k' && std::isinf(value)) continue;  // its sign decides a row's result
        Problem problem = problem_of(
            {.batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 90, .seqlen_kv = 90}, dtype);
        problem.causal = true;
        problem.mask = TensorDesc::contiguous(DType::boolean, {1, 2, 90, 90});
        HostProblem host = bench::make_host_problem(problem, 8);
        const int64_t key = 37, width = 64, element = 11;
        host.at(name).set(key * width + element, value);
        ASSERT_TRUE(run_on_host(host, simd_options()).ok());
        int64_t attending = 0;
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t i = 0; i < 90; ++i) {
            const int64_t row = h * 90 + i;
            const bool attends = key <= i && host.at("mask").get(row * 90 + key) != 0;
            attending += attends;
            for (int64_t d = 0; d < width; ++d) {
              const bool hit = attends && (name[0] == 'k' || d == element);
              ASSERT_EQ(std::isfinite(host.at("o").get(row * width + d)), !hit)
                  << name << " " << value << " row " << row << " column " << d;
            }
          }
        }
        ASSERT_GT(attending, 20);
        ASSERT_LT(attending, 2 * (90 - key));
      }
    }
  }
}

// One key per entry, so that O is its value and LSE its score.
TEST_P(EveryTarget, FewRowsReadEveryByteOfFp8) {
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
    for (const DType q : {DType::f32, DType::f16, DType::bf16}) {
      for (const int64_t rows : {1, 2, 3, 4, 7, 8, 9, 16}) {
        SCOPED_TRACE(fmt::format("{} under {}, {} rows", to_string(dtype), to_string(q), rows));
        Problem problem = problem_of(
            {.batch = 256, .heads_q = rows, .heads_kv = 1, .seqlen_q = 1, .seqlen_kv = 1}, q);
        problem.k.dtype = problem.v.dtype = dtype;
        problem.o.dtype = DType::f32;
        problem.softmax_scale = 1.0f;
        HostProblem host = bench::make_host_problem(problem, 12);
        std::vector<double> value(256);
        auto* const k = static_cast<uint8_t*>(host.at("k").data());
        auto* const v = static_cast<uint8_t*>(host.at("v").data());
        for (int64_t b = 0; b < 256; ++b) {
          std::fill_n(k + b * 64, 64, uint8_t{0});
          std::fill_n(v + b * 64, 64, uint8_t{0});
          k[b * 64 + b % 64] = v[b * 64 + b % 64] = static_cast<uint8_t>(b);
          value[static_cast<size_t>(b)] = host.at("v").get(b * 64 + b % 64);
        }
        for (int64_t i = 0; i < 256 * rows * 64; ++i) host.at("q").set(i, 1);
        ASSERT_TRUE(run_on_host(host, simd_options()).ok());
        for (int64_t b = 0; b < 256; ++b) {
          const double wanted = value[static_cast<size_t>(b)];
          for (int64_t r = 0; r < rows; ++r) {
            const double lse = host.at("lse").get(b * rows + r);
            const double o = host.at("o").get((b * rows + r) * 64 + b % 64);
            if (std::isfinite(wanted)) {
              ASSERT_NEAR(o, wanted, std::abs(wanted) * 1e-6) << "byte " << b;
              ASSERT_NEAR(lse, wanted, std::abs(wanted) * 1e-6) << "byte " << b;
            } else {
              ASSERT_TRUE(std::isnan(o) || std::isinf(wanted)) << "byte " << b;
              ASSERT_TRUE(std::isnan(lse) || std::isinf(wanted)) << "byte " << b;
            }
          }
        }
      }
    }
  }
}

// A value that is NaN or infinite, in a cache that few rows read: its column is not finite in the
// rows that attend to it. All other elements have the same bits as with a 0.
TEST_P(EveryTarget, FewRowsChooseValuesThatAreNotFinite) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  bench::Random random(13);
  for (const int64_t head_dim : {1, 63, 80, 256}) {
    for (const DType dtype : kInputTypes) {
      for (const double value : {kNaN, kInf, -kInf}) {
        const int64_t rows = random.integer(1, 16), keys = 70, key = random.integer(0, keys - 1);
        const int64_t element = random.integer(0, head_dim - 1);
        SCOPED_TRACE(fmt::format("{} {}, {} rows, D {}, key {}, element {}", to_string(dtype),
                                 value, rows, head_dim, key, element));
        Problem problem = problem_of({.batch = 1,
                                      .heads_q = 1,
                                      .heads_kv = 1,
                                      .seqlen_q = rows,
                                      .seqlen_kv = keys,
                                      .head_dim = head_dim},
                                     dtype);
        problem.o.dtype = DType::f32;
        problem.mask = TensorDesc::contiguous(DType::boolean, {1, 1, rows, keys});
        HostProblem host = bench::make_host_problem(problem, 14);
        host.at("v").set(key * head_dim + element, 0);
        ASSERT_TRUE(run_on_host(host, simd_options()).ok());
        const std::vector<double> without = host.at("o").values();
        host.at("v").set(key * head_dim + element, value);
        if (std::isfinite(host.at("v").get(key * head_dim + element))) continue;  // it saturates
        ASSERT_TRUE(run_on_host(host, simd_options()).ok());
        for (int64_t r = 0; r < rows; ++r) {
          const bool attends = host.at("mask").get(r * keys + key) != 0;
          for (int64_t d = 0; d < head_dim; ++d) {
            const double o = host.at("o").get(r * head_dim + d);
            if (attends && d == element) {
              ASSERT_FALSE(std::isfinite(o)) << "row " << r;
            } else {
              ASSERT_EQ(o, without[static_cast<size_t>(r * head_dim + d)]) << r << ' ' << d;
            }
          }
        }
      }
    }
  }
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST_P(EveryTarget, TheSameBitsTwiceAndOnAnyNumberOfThreads) {
  for (uint64_t seed = 1000; seed < 1000 + problem_count(60); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    HostProblem host = bench::random_problem(seed);
    ASSERT_TRUE(run_on_host(host, simd_options(1)).ok());
    const bench::HostTensor first = host.at("o");
    for (const int threads : {1, 2, 7, 16}) {
      host.at("o").poison();
      ASSERT_TRUE(run_on_host(host, simd_options(threads)).ok());
      ASSERT_TRUE(first.same_elements(host.at("o"))) << threads << " threads";
    }
  }
}

// Compares a row in a batch of six with the same row alone.
TEST_P(EveryTarget, ARowDoesNotDependOnItsBatch) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t seqlen_q : {1, 70}) {
      Problem problem = problem_of(
          {.batch = 6, .heads_q = 4, .heads_kv = 2, .seqlen_q = seqlen_q, .seqlen_kv = 4500},
          dtype);
      problem.causal = true;
      HostProblem all = bench::make_host_problem(problem, 10);
      ASSERT_TRUE(run_on_host(all, simd_options()).ok());
      const std::vector<double> wanted = all.at("o").values();
      for (TensorDesc* const desc :
           {&problem.q, &problem.k, &problem.v, &problem.o, &*problem.lse}) {
        desc->shape[0] = 1;
      }
      HostProblem one = bench::make_host_problem(problem, 10);
      for (const char* const name : {"q", "k", "v"}) {
        const int64_t count = one.at(name).elements();
        for (int64_t i = 0; i < count; ++i) one.at(name).set(i, all.at(name).get(4 * count + i));
      }
      ASSERT_TRUE(run_on_host(one, simd_options(1)).ok());
      const std::vector<double> got = one.at("o").values();
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(same(got[i], wanted[4 * got.size() + i])) << i;
      }
    }
  }
}

// Rows after the last query in use do not change how keys are split.
TEST_P(EveryTarget, APaddedEntryHasTheBitsOfTheEntryAlone) {
  for (const int64_t queries : {1, 12}) {
    const int64_t rows = 100, heads = 4, head_dim = 64;
    Problem problem = problem_of(
        {.batch = 1, .heads_q = heads, .heads_kv = 2, .seqlen_q = queries, .seqlen_kv = 4500},
        DType::f32);
    HostProblem alone = bench::make_host_problem(problem, 16);
    ASSERT_TRUE(run_on_host(alone, simd_options()).ok());
    problem.q = problem.o = TensorDesc::contiguous(DType::f32, {1, heads, rows, head_dim});
    problem.lse = TensorDesc::contiguous(DType::f32, {1, heads, rows});
    problem.seqlens_q = TensorDesc::contiguous(DType::i32, {1});
    HostProblem padded = bench::make_host_problem(problem, 16);
    padded.at("seqlens_q").set(0, static_cast<double>(queries));
    for (const char* const name : {"k", "v"}) {
      for (int64_t i = 0; i < alone.at(name).elements(); ++i) {
        padded.at(name).set(i, alone.at(name).get(i));
      }
    }
    const auto at = [&](int64_t head, int64_t row) { return (head * rows + row) * head_dim; };
    for (int64_t i = 0; i < alone.at("q").elements(); ++i) {
      const int64_t head = i / head_dim / queries, row = i / head_dim % queries;
      padded.at("q").set(at(head, row) + i % head_dim, alone.at("q").get(i));
    }
    ASSERT_TRUE(run_on_host(padded, simd_options()).ok());
    for (int64_t i = 0; i < alone.at("o").elements(); ++i) {
      const int64_t head = i / head_dim / queries, row = i / head_dim % queries;
      ASSERT_TRUE(same(padded.at("o").get(at(head, row) + i % head_dim), alone.at("o").get(i)))
          << i;
    }
  }
}

TEST(ForwardCpu, RefusesF64Outputs) {
  Problem problem = problem_of({}, DType::f32);
  problem.o.dtype = DType::f64;
  EXPECT_EQ(make_plan(problem, simd_options()).status().message(),
            "kernel cpu_simd: o: dtype is f64, wanted f16, bf16, f32, f8e4m3 or f8e5m2");
  problem.o.dtype = DType::f32;
  problem.lse->dtype = DType::f64;
  EXPECT_EQ(make_plan(problem, simd_options()).status().message(),
            "kernel cpu_simd: lse: dtype is f64, wanted f32");
}

TEST(ForwardCpu, IsTheChoiceAndSaysItsTarget) {
  const Result<Plan> plan = make_plan(problem_of({}, DType::f16));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kernel(), "cpu_simd");
  EXPECT_EQ(build_info().cpu_target, cpu::to_string(cpu::supported_targets().back()));
}

TEST(ForwardCpu, AnUnknownTargetIsNoTarget) {
  setenv("FLASHCORE_CPU_TARGET", "AVX9", 1);
  EXPECT_EQ(cpu::chosen_target(), cpu::supported_targets().back());
  unsetenv("FLASHCORE_CPU_TARGET");
}

// The workspace depends on threads and blocks, not on scores: it does not grow with the keys.
TEST(ForwardCpu, TheWorkspaceDoesNotGrowWithTheSequence) {
  size_t bytes[2];
  for (const int i : {0, 1}) {
    const int64_t seqlen = i == 0 ? 2048 : 65536;
    const Result<Plan> plan = make_plan(
        problem_of({.seqlen_q = seqlen, .seqlen_kv = seqlen}, DType::f32), simd_options(4));
    ASSERT_TRUE(plan.ok());
    bytes[i] = plan->workspace_bytes();
  }
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_LT(bytes[0], size_t{4} << 20);
}

TEST(ForwardCpu, RefusesAWorkspaceThatIsTooSmall) {
  HostProblem host = bench::make_host_problem(problem_of({}, DType::f32), 0);
  const Result<Plan> plan = make_plan(host.problem, simd_options());
  ASSERT_TRUE(plan.ok());
  ASSERT_GT(plan->workspace_bytes(), 0U);
  alignas(256) std::byte memory[256];
  EXPECT_EQ(plan->run(host.arguments(), memory, plan->workspace_bytes() - 1).code(),
            StatusCode::invalid_argument);
}

}  // namespace
}  // namespace flashcore

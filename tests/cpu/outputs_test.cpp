// An fp8 O with its scale, and the largest values, on every CPU kernel: with exact numbers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "problem/problem.hpp"
#include "tests/cpu/forward_problem.hpp"
#include "tests/cpu/judge.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::f32;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Shape {
  int64_t batch = 1, heads = 1, seqlen_q = 1, seqlen_kv = 1, head_dim = 8;
};

Problem problem_of(const Shape& s, DType o_dtype, DType dtype = DType::f32) {
  Problem problem;
  problem.q = TensorDesc::contiguous(dtype, {s.batch, s.heads, s.seqlen_q, s.head_dim});
  problem.k = problem.v =
      TensorDesc::contiguous(dtype, {s.batch, s.heads, s.seqlen_kv, s.head_dim});
  problem.o = TensorDesc::contiguous(o_dtype, {s.batch, s.heads, s.seqlen_q, s.head_dim});
  problem.lse = f32({s.batch, s.heads, s.seqlen_q});
  problem.amax_o = problem.amax_s = problem.max_logit = f32({s.batch, s.heads});
  return problem;
}

Status run(HostProblem& host, const std::string& kernel, int threads = 3) {
  return testing::run_on_host(host, testing::on_kernel(kernel, threads));
}

// Runs the reference, the naive computation if it has the type, and the SIMD kernel on every
// instruction set, and calls `look` for each.
void on_each_kernel(const Problem& problem, const std::function<void(HostProblem&)>& bend,
                    const std::function<void(const HostProblem&)>& look) {
  std::vector<std::string> kernels = {"reference", "cpu_simd"};
  if (size_of(problem.q.dtype) == 2) kernels.emplace_back("naive");
  EachTarget targets;
  for (const std::string& kernel : kernels) {
    for (uint64_t n = 0; n < (kernel == "cpu_simd" ? 4 : 1); ++n) {
      HostProblem host = bench::make_host_problem(problem, 1);
      bend(host);
      SCOPED_TRACE(kernel + ", " + targets.use(n));
      const Status status = run(host, kernel);
      ASSERT_TRUE(status.ok()) << status.message();
      for (const auto& [name, tensor] : host.tensors) EXPECT_TRUE(tensor.canaries_intact()) << name;
      look(host);
    }
  }
}

std::vector<double> values(const HostProblem& host, const char* name) {
  return host.at(name).values();
}

// One key: O is its value for any query.
TEST(Fp8Outputs, AreRoundedToNearestEvenAfterTheDivision) {
  // In units of the scale: ties of e4m3 to the even neighbour, near ties, subnormal numbers,
  // saturation, and signs.
  const std::vector<double> quotients = {1.0625, 1.1875, 1.0626, -17.0,  -19.0, 0x1p-10, 0x1.8p-9,
                                         448,    464,    479.9,  -500.0, 1e30,  -1e-6,   0.01};
  const std::vector<double> stored = {1.0, 1.25, 1.125, -16.0,  -20.0, 0.0,  0x1p-8,
                                      448, 448,  448,   -448.0, 448,   -0.0, 0x1.4p-7};
  for (const double scale : {1.0, 0.25, 64.0}) {
    Problem problem = problem_of({.head_dim = std::ssize(quotients)}, DType::f8e4m3);
    problem.o_scale = f32({1, 1});
    on_each_kernel(
        problem,
        [&](HostProblem& host) {
          host.at("q").fill([] { return 0; });  // p is exactly 1
          host.at("o_scale").set(0, scale);
          for (size_t i = 0; i < quotients.size(); ++i) {
            host.at("v").set(static_cast<int64_t>(i), quotients[i] * scale);
          }
        },
        [&](const HostProblem& host) {
          EXPECT_EQ(values(host, "o"), stored) << scale;
          EXPECT_EQ(host.at("amax_o").get(0), static_cast<float>(1e30 * scale));
        });
  }
}

TEST(Fp8Outputs, OfE5m2RoundAndSaturateToo) {
  Problem problem = problem_of({.head_dim = 5}, DType::f8e5m2);
  problem.o_scale = f32({1, 1});
  on_each_kernel(
      problem,
      [](HostProblem& host) {
        const std::vector<double> quotients = {1.125, 1.375, 57344, 61440, -1e9};
        host.at("q").fill([] { return 0; });
        host.at("o_scale").set(0, 0.5);
        for (int64_t i = 0; i < 5; ++i) {
          host.at("v").set(i, quotients[static_cast<size_t>(i)] / 2);
        }
      },
      [](const HostProblem& host) {
        EXPECT_THAT(values(host, "o"), ElementsAre(1.0, 1.5, 57344, 57344, -57344));
      });
}

TEST(Fp8Outputs, SaturateInfinitiesAndKeepNaN) {
  Problem problem = problem_of({.head_dim = 3}, DType::f8e5m2);
  on_each_kernel(
      problem,
      [](HostProblem& host) {
        host.at("v").set(0, kInf);
        host.at("v").set(1, -kInf);
        host.at("v").set(2, 7);
      },
      [](const HostProblem& host) {
        EXPECT_THAT(values(host, "o"), ElementsAre(57344, -57344, 7));
        EXPECT_EQ(host.at("amax_o").get(0), kInf);
        EXPECT_EQ(host.at("amax_s").get(0), 1);
      });
  on_each_kernel(
      problem, [](HostProblem& host) { host.at("v").set(1, kNaN); },
      [](const HostProblem& host) {
        EXPECT_TRUE(std::isnan(host.at("o").get(1)));
        EXPECT_FALSE(std::isnan(host.at("o").get(0)));
        EXPECT_TRUE(std::isnan(host.at("amax_o").get(0)));
        EXPECT_EQ(host.at("amax_s").get(0), 1);  // for any V
      });
}

// A scale whose inverse exceeds fp32's range.
TEST(Fp8Outputs, TakeEveryPositiveScale) {
  Problem problem = problem_of({.head_dim = 3}, DType::f8e4m3);
  problem.o_scale = f32({1, 1});
  for (const float scale :
       {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    on_each_kernel(
        problem,
        [&](HostProblem& host) {
          host.at("q").fill([] { return 0; });
          host.at("o_scale").set(0, scale);
          for (int64_t i = 0; i < 3; ++i) host.at("v").set(i, static_cast<double>(i) * scale);
        },
        [&](const HostProblem& host) {
          EXPECT_THAT(values(host, "o"), ElementsAre(0, 1, scale < 1 ? 2 : 448)) << scale;
        });
  }
}

TEST(Fp8Outputs, RefuseScalesThatDivideNothing) {
  Problem problem = problem_of({.batch = 2, .heads = 3}, DType::f8e4m3);
  problem.o_scale = f32({2, 3});
  for (const double scale : {0.0, -0.0, -1.0, kNaN, kInf, -kInf}) {
    for (const char* const kernel : {"reference", "cpu_simd"}) {
      HostProblem host = bench::make_host_problem(problem, 1);
      host.at("o_scale").set(4, scale);
      const Status status = run(host, kernel);
      EXPECT_EQ(status.code(), StatusCode::invalid_argument) << scale;
      EXPECT_THAT(status.message(), HasSubstr("o_scale: element [1, 1] is "));
      EXPECT_THAT(status.message(), HasSubstr("wanted a positive finite number"));
      for (const char* const name : {"o", "lse", "amax_o"}) {
        EXPECT_TRUE(std::isnan(host.at(name).get(0))) << name << " was written";
      }
    }
  }
}

// Two keys with the same score and a removed one: p is 1/2, with an equal sink 1/3.
TEST(LargestValues, AreThoseBeforeDropoutAndRounding) {
  for (const DType o_dtype : {DType::f32, DType::bf16, DType::f8e4m3}) {
    Problem problem = problem_of({.seqlen_q = 5, .seqlen_kv = 3, .head_dim = 2}, o_dtype);
    problem.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 1, 3});
    problem.sinks = f32({1});
    problem.dropout_p = 0.5f;
    on_each_kernel(
        problem,
        [](HostProblem& host) {
          host.at("q").fill([] { return 0; });
          host.at("sinks").set(0, 0);
          for (int64_t j = 0; j < 3; ++j) host.at("mask").set(j, j < 2 ? 1 : 0);
          host.at("v").fill([] { return -300.3; });
        },
        [](const HostProblem& host) {
          EXPECT_EQ(host.at("amax_s").get(0), 1.0f / 3);
          // Each row keeps zero, one or two keys, at twice their weight.
          double largest = 0;
          for (const double o : values(host, "o")) largest = std::max(largest, std::abs(o));
          const double amax = host.at("amax_o").get(0);
          EXPECT_NEAR(amax, largest > 210 ? 400.4 : 200.2, 1e-3);
          EXPECT_NEAR(amax, largest, amax / 16);
        });
  }
}

TEST(LargestValues, ReduceOverTheirBroadcastDimensions) {
  const Shape shape{.batch = 3, .heads = 4, .seqlen_q = 7, .seqlen_kv = 9};
  const HostProblem all = [&] {
    HostProblem host = bench::make_host_problem(problem_of(shape, DType::f32), 1);
    EXPECT_TRUE(run(host, "cpu_simd").ok());
    return host;
  }();
  for (const int64_t batch : {1, 3}) {
    for (const int64_t heads : {1, 4}) {
      Problem problem = problem_of(shape, DType::f32);
      problem.amax_o = problem.amax_s = problem.max_logit =
          TensorDesc::strided(DType::f32, {batch, heads}, {2, 7});
      on_each_kernel(
          problem, [](HostProblem&) {},
          [&](const HostProblem& host) {
            for (const auto& [name, flag, tensor, output, data, least] : kLargestOutputs) {
              for (int64_t b = 0; b < batch; ++b) {
                for (int64_t h = 0; h < heads; ++h) {
                  double want = least;
                  for (int64_t i = 0; i < 12; ++i) {
                    if (batch > 1 && i / 4 != b) continue;
                    if (heads > 1 && i % 4 != h) continue;
                    want = std::max(want, all.at(name).get(i));
                  }
                  EXPECT_NEAR(host.at(name).get(b * heads + h), want, 1e-5 * std::abs(want))
                      << name;
                }
              }
            }
            // An O that is not rounded has its own largest value.
            double largest = 0;
            for (const double o : values(host, "o")) largest = std::max(largest, std::abs(o));
            if (batch == 1 && heads == 1) {
              EXPECT_EQ(host.at("amax_o").get(0), largest);
            }
          });
    }
  }
}

// Rows past the queries in use and rows without a key count as zeros; so do entries without rows.
TEST(LargestValues, CountRowsThatSeeNoKeyAsZero) {
  Problem problem = problem_of({.batch = 3, .seqlen_q = 4, .seqlen_kv = 6}, DType::f16, DType::f16);
  problem.seqlens_q = problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {3});
  problem.sinks = f32({1});
  on_each_kernel(
      problem,
      [](HostProblem& host) {
        const double queries[] = {2, 0, 4}, keys[] = {1, 6, 0};
        for (int64_t b = 0; b < 3; ++b) {
          host.at("seqlens_q").set(b, queries[b]);
          host.at("seqlens_kv").set(b, keys[b]);
        }
        host.at("sinks").set(0, -kInf);
        host.at("q").fill([n = 0]() mutable { return ++n > 16 && n <= 32 ? kNaN : 1.0; });
      },
      [](const HostProblem& host) {
        EXPECT_THAT(values(host, "amax_s"), ElementsAre(1, 0, 0));
        EXPECT_GT(host.at("max_logit").get(0), -kInf);
        EXPECT_EQ(host.at("max_logit").get(1), -kInf);
        EXPECT_EQ(host.at("max_logit").get(2), -kInf);
        EXPECT_GT(host.at("amax_o").get(0), 0);
        EXPECT_EQ(host.at("amax_o").get(1), 0);
        EXPECT_EQ(host.at("amax_o").get(2), 0);
        EXPECT_FALSE(std::signbit(host.at("amax_o").get(1)));
      });
}

TEST(LargestValues, AreZeroWhereThereIsNoRow) {
  for (const Shape& shape : {Shape{.batch = 2, .heads = 3, .seqlen_q = 0, .seqlen_kv = 4},
                             Shape{.batch = 2, .heads = 3, .seqlen_q = 4, .seqlen_kv = 0}}) {
    on_each_kernel(
        problem_of(shape, DType::f32), [](HostProblem&) {},
        [](const HostProblem& host) {
          EXPECT_THAT(values(host, "amax_o"), ElementsAre(0, 0, 0, 0, 0, 0));
          EXPECT_THAT(values(host, "amax_s"), ElementsAre(0, 0, 0, 0, 0, 0));
          EXPECT_THAT(values(host, "max_logit"), Each(-kInf));
        });
  }
  Problem none = problem_of({.batch = 0, .heads = 2, .seqlen_q = 3, .seqlen_kv = 3}, DType::f32);
  none.amax_o = none.amax_s = none.max_logit = f32({1, 2});
  on_each_kernel(
      none, [](HostProblem&) {},
      [](const HostProblem& host) { EXPECT_THAT(values(host, "amax_o"), ElementsAre(0, 0)); });
}

// A NaN or a score of +inf appears in its head's amax_s, a sink of NaN or +inf only if a row
// sees a key.
TEST(LargestValues, AreNaNWhereAProbabilityIs) {
  const Shape shape{.batch = 1, .heads = 4, .seqlen_q = 2, .seqlen_kv = 40, .head_dim = 4};
  Problem problem = problem_of(shape, DType::f32);
  problem.bias = f32({1, 4, 2, 40});
  problem.sinks = f32({4});
  problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {1});
  for (const double keys : {40, 0}) {
    on_each_kernel(
        problem,
        [&](HostProblem& host) {
          host.at("seqlens_kv").set(0, keys);
          host.at("bias").set(17, kInf);
          host.at("sinks").set(1, kNaN);
          host.at("sinks").set(2, kInf);
        },
        [&](const HostProblem& host) {
          // A sink is no score.
          const bench::HostTensor& scores = host.at("max_logit");
          EXPECT_TRUE(keys == 0 ? scores.get(0) == -kInf : std::isnan(scores.get(0)));
          for (int64_t h = 1; h < 4; ++h) EXPECT_EQ(scores.get(h) > -kInf, keys > 0) << h;
          for (const char* const name : {"amax_o", "amax_s"}) {
            if (keys == 0) {
              EXPECT_THAT(values(host, name), ElementsAre(0, 0, 0, 0)) << name;
              continue;
            }
            EXPECT_TRUE(std::isnan(host.at(name).get(0))) << name;
            EXPECT_TRUE(std::isnan(host.at(name).get(1))) << name;
            EXPECT_TRUE(std::isnan(host.at(name).get(2))) << name;
            EXPECT_GT(host.at(name).get(3), 0) << name;
          }
        });
  }
}

// Jobs with many heads, parts of a long row, caches and packed batches: pass the gates, with the
// same bits for any number of threads.
TEST(LargestValues, AreTheSameAtAnyNumberOfThreads) {
  std::vector<Problem> problems;
  problems.push_back(problem_of({2, 5, 130, 300, 40}, DType::f8e4m3, DType::bf16));
  problems.push_back(problem_of({1, 3, 1, 9000, 64}, DType::f8e5m2, DType::f16));
  problems.push_back(problem_of({1, 3, 2, 9000, 64}, DType::bf16, DType::f8e4m3));
  Problem pages = problem_of({2, 4, 3, 300, 64}, DType::f8e4m3, DType::f16);
  pages.k = pages.v = TensorDesc::contiguous(DType::f8e5m2, {38, 4, 16, 64});
  pages.page_table = TensorDesc::contiguous(DType::i32, {2, 19});
  problems.push_back(pages);
  Problem packed;
  packed.q = packed.k = packed.v = TensorDesc::contiguous(DType::f32, {200, 4, 32});
  packed.o = TensorDesc::contiguous(DType::f8e4m3, {200, 4, 32});
  packed.cu_seqlens_q = packed.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {4});
  packed.amax_o = packed.amax_s = packed.max_logit = f32({3, 4});
  packed.causal = true;
  problems.push_back(packed);
  for (Problem& problem : problems) {
    const int64_t heads = problem.q.shape[1];
    problem.o_scale =
        problem.o.dtype == DType::bf16 ? std::nullopt : std::optional(f32({1, heads}));
    HostProblem host = bench::make_host_problem(problem, 5);
    const Result<bench::Reference> reference = bench::compute_reference(host, 2);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    std::vector<std::vector<double>> first;
    for (const int threads : {1, 2, 5}) {
      testing::expect_passes(host, *reference, testing::on_kernel("cpu_simd", threads));
      const std::vector<std::vector<double>> got = {values(host, "o"), values(host, "amax_o"),
                                                    values(host, "amax_s"),
                                                    values(host, "max_logit")};
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << threads;
    }
  }
}

}  // namespace
}  // namespace flashcore

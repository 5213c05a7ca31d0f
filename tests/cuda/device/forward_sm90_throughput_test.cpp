// forward_sm90_throughput on the device, on data made to break a softmax that takes no maximum:
// scores that grow against and along the order of the blocks, outliers, values that are not finite.
// Skipped where there is no GPU of compute capability 9.0.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "bench/device/execution.hpp"
#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/gpu.hpp"
#include "tests/cuda/device/promises.hpp"

namespace flashcore {
namespace {

constexpr int64_t kHeads = 3, kQueries = 400, kKeys = 650;

Problem problem_of(DType dtype, int64_t head_dim, bool causal) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(dtype, {1, kHeads, kQueries, head_dim});
  p.k = p.v = TensorDesc::contiguous(dtype, {1, kHeads, kKeys, head_dim});
  p.lse = TensorDesc::contiguous(DType::f32, {1, kHeads, kQueries});
  p.causal = causal;
  return p;
}

// Visits element (key j, column c) of a [1, kHeads, rows, head_dim] tensor.
void for_each_element(int64_t rows, int64_t head_dim,
                      const std::function<void(int64_t element, int64_t row, int64_t column)>& f) {
  for (int64_t i = 0; i < kHeads * rows * head_dim; ++i) {
    f(i, i / head_dim % rows, i % head_dim);
  }
}

constexpr const char *kKernel = "forward_sm90_throughput",
                     *kTall = "forward_sm90_throughput:192x128";

// At head dimension 64 there is a choice of tiles, which small problems would leave untested.
const std::vector<const char*> kTiles = {kKernel, kTall, "forward_sm90_throughput:64x128",
                                         "forward_sm90_throughput:64x64"};
std::vector<const char*> kernels_for(const Problem& problem) {
  if (make_plan(problem, on_gpu(kTall)).ok()) return kTiles;
  return {kKernel};
}

// Runs three times, with the same bits each time; the outputs are in `host` afterwards.
void run_thrice(bench::HostProblem& host, const char* kernel) {
  const Result<Plan> plan = make_plan(host.problem, on_gpu(kernel));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  bench::poison_outputs(host);
  Result<bench::Execution> execution = bench::Execution::prepare(*plan, first_gpu(), host);
  ASSERT_TRUE(execution.ok()) << execution.status().message();
  std::vector<std::byte> first;
  for (int run = 0; run < 3; ++run) {
    ASSERT_TRUE(execution->run().ok());
    const Status fetched = execution->fetch();
    ASSERT_TRUE(fetched.ok()) << fetched.message();
    const auto memory = host.at("o").memory();
    if (run == 0) first.assign(memory.begin(), memory.end());
    EXPECT_EQ(std::memcmp(first.data(), memory.data(), first.size()), 0) << "run " << run;
  }
}

// The gates for N(0, 1) inputs.
void expect_right(bench::HostProblem& host) {
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  for (const char* kernel : kernels_for(host.problem)) {
    run_thrice(host, kernel);
    EXPECT_EQ(bench::judge(host, *reference).failure, "") << kernel;
  }
}

// sum of p |v|, by the reference.
std::vector<double> mean_magnitudes(bench::HostProblem& host) {
  bench::HostTensor& v = host.at("v");
  std::vector<double> values(static_cast<size_t>(v.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<int64_t>(i);
    values[i] = v.get(element);
    v.set(element, std::abs(values[i]));
  }
  const Result<bench::Reference> reference = bench::compute_reference(host);
  EXPECT_TRUE(reference.ok()) << reference.status().message();
  for (size_t i = 0; i < values.size(); ++i) v.set(static_cast<int64_t>(i), values[i]);
  return reference->o;
}

// The gates for data that is not N(0, 1): without the limit on the scaled error, which few large
// weights and large values pass by the rounding of probabilities alone. Instead each element stays
// within what that rounding can do: a probability is off by u of itself at most, u = 2^-8 in bf16
// and 2^-11 in fp16, so an output by u times the mean of |v|, and by u of itself once more when it
// is rounded. Scores in fp32 and 2^x are good for 2.5e-4 of each weight.
void expect_rounding_of(bench::HostProblem& host, const char* kernel,
                        const bench::Reference& reference, const std::vector<double>& magnitudes) {
  SCOPED_TRACE(kernel);
  run_thrice(host, kernel);
  const bench::Verdict verdict = bench::judge(host, reference);
  const DType dtype = host.problem.q.dtype;
  const bench::GateLimits limits = bench::gate_limits(dtype);
  EXPECT_LE(verdict.relative_error, limits.relative_error);
  EXPECT_LE(verdict.lse_error, limits.lse_error);
  EXPECT_LE(verdict.max_error, 2 * reference.naive_max_error + *limits.naive_allowance);
  const bench::HostTensor& o = host.at("o");
  EXPECT_TRUE(o.canaries_intact() && host.at("lse").canaries_intact());
  const double u = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  double worst = 0;
  for (size_t i = 0; i < reference.o.size(); ++i) {
    const double got = o.get(static_cast<int64_t>(i)), want = reference.o[i];
    ASSERT_TRUE(std::isfinite(got)) << "element " << i;
    const double bound = (u + 2.5e-4) * magnitudes[i] + u * std::abs(want) + 1e-6;
    worst = std::max(worst, std::abs(got - want) / bound);
  }
  EXPECT_LE(worst, 1.0) << "of what rounding can do";
}
void expect_rounding_alone(bench::HostProblem& host) {
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  const std::vector<double> magnitudes = mean_magnitudes(host);
  for (const char* kernel : kernels_for(host.problem)) {
    expect_rounding_of(host, kernel, *reference, magnitudes);
  }
}

void for_each_case(const std::function<void(bench::HostProblem&, int64_t head_dim)>& change,
                   const std::function<void(bench::HostProblem&)>& expect) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  uint64_t seed = 900;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const bool causal : {false, true}) {
        bench::HostProblem host =
            bench::make_host_problem(problem_of(dtype, head_dim, causal), seed++);
        change(host, head_dim);
        SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " causal " << causal
                                        << " bf16 " << (dtype == DType::bf16));
        expect(host);
      }
    }
  }
}

void set_growing(bench::HostProblem& host, int64_t head_dim, bool to_the_left) {
  bench::HostTensor &q = host.at("q"), &k = host.at("k");
  for_each_element(kQueries, head_dim, [&](int64_t element, int64_t, int64_t column) {
    q.set(element, column < 8 ? 6 : 0.1);
  });
  for_each_element(kKeys, head_dim, [&](int64_t element, int64_t key, int64_t column) {
    const auto step = static_cast<double>(to_the_left ? kKeys - key : key);
    k.set(element, step * 0.02 * (column < 8 ? 1 : 0.05));
  });
}

TEST(ForwardSm90, ScoresThatGrowFromBlockToBlock) {
  for_each_case(
      [](bench::HostProblem& host, int64_t head_dim) { set_growing(host, head_dim, true); },
      expect_right);
}

TEST(ForwardSm90, ScoresThatFallFromBlockToBlock) {
  for_each_case(
      [](bench::HostProblem& host, int64_t head_dim) { set_growing(host, head_dim, false); },
      expect_right);
}

TEST(ForwardSm90, OutliersAmongTheKeys) {
  for_each_case(
      [](bench::HostProblem& host, int64_t head_dim) {
        bench::HostTensor& k = host.at("k");
        for_each_element(kKeys, head_dim, [&](int64_t element, int64_t key, int64_t) {
          if (key % 97 == 5) k.set(element, k.get(element) * 10);
        });
      },
      expect_rounding_alone);
}

TEST(ForwardSm90, KeysOfSixTimesTheUsualSize) {
  for_each_case(
      [](bench::HostProblem& host, int64_t head_dim) {
        bench::HostTensor& k = host.at("k");
        for_each_element(kKeys, head_dim, [&](int64_t element, int64_t, int64_t) {
          k.set(element, k.get(element) * 6);
        });
      },
      expect_rounding_alone);
}

TEST(ForwardSm90, ValuesThatAreNotFinite) {
  for_each_case(
      [](bench::HostProblem& host, int64_t head_dim) {
        bench::HostTensor& v = host.at("v");
        std::mt19937 random(5);
        for_each_element(kKeys, head_dim, [&](int64_t element, int64_t, int64_t) {
          if (random() % 5000 != 0) return;
          v.set(element, random() % 2 == 0 ? std::numeric_limits<double>::infinity()
                                           : std::numeric_limits<double>::quiet_NaN());
        });
      },
      expect_right);
}

// Scores of N(0, 1) with caps that they stay far below, that they reach now and then, and that
// they are far beyond; with a scale that is not positive, too.
TEST(ForwardSm90, SoftcapNearAndFarFromTheCap) {
  for (const auto& [cap, scale] : {std::pair{30.0F, 0.125F},
                                   {4.0F, 0.125F},
                                   {0.5F, 0.125F},
                                   {30.0F, -0.125F},
                                   {0.0F, -0.125F},
                                   {1e-4F, 0.125F}}) {
    for_each_case(
        [&, cap = cap, scale = scale](bench::HostProblem& host, int64_t) {
          host.problem.softcap = cap;
          host.problem.softmax_scale = scale;
        },
        expect_right);
  }
}

TEST(ForwardSm90, OutliersBeyondTheCap) {
  for_each_case(
      [](bench::HostProblem& host, int64_t head_dim) {
        host.problem.softcap = 8;
        bench::HostTensor& k = host.at("k");
        for_each_element(kKeys, head_dim, [&](int64_t element, int64_t key, int64_t) {
          if (key % 97 == 5) k.set(element, k.get(element) * 10);
        });
      },
      expect_rounding_alone);
}

// Which of the tiles with blocks of 128 keys computes a row does not show in its bits.
TEST(ForwardSm90, TallAndLowTilesGiveTheSameBits) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const bool causal : {false, true}) {
      bench::HostProblem host = bench::make_host_problem(problem_of(dtype, 64, causal), 4711);
      run_thrice(host, "forward_sm90_throughput:64x128");
      const auto memory = host.at("o").memory();
      const std::vector<std::byte> first(memory.begin(), memory.end());
      run_thrice(host, kTall);
      EXPECT_EQ(std::memcmp(first.data(), memory.data(), first.size()), 0);
    }
  }
}

// Problems with more tiles than an H200 has multiprocessors, for each kernel that takes them.
std::vector<Promised> promises() {
  std::vector<Promised> all;
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      Problem p;
      p.q = p.o = TensorDesc::contiguous(DType::bf16, {3, 12, 700, head_dim});
      p.k = p.v = TensorDesc::contiguous(DType::bf16, {3, 4, 700, head_dim});
      p.lse = TensorDesc::contiguous(DType::f32, {3, 12, 700});
      p.causal = causal;
      const auto make = [p](int64_t, uint64_t seed) { return bench::make_host_problem(p, seed); };
      for (const char* const kernel : head_dim == 64 ? kTiles : std::vector<const char*>{kKernel}) {
        all.push_back(
            {fmt::format("{}{}", head_dim, causal ? " causal" : ""), on_gpu(kernel), make});
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(ForwardSm90, Promises, testing::ValuesIn(promises()));

}  // namespace
}  // namespace flashcore

// forward_sm90 on the device, on data made to break a softmax that takes no maximum: scores that
// grow against and along the order of the blocks, outliers, values that are not finite. Skipped
// where there is no GPU of compute capability 9.0.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "bench/gates.hpp"
#include "bench/tensor_set.hpp"
#include "cli/execution.hpp"

namespace flashcore {
namespace {

constexpr int64_t kHeads = 3, kQueries = 400, kKeys = 650;

bool has_hopper() {
  int count = 0, major = 0, minor = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return major == 9 && minor == 0;
}

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

// Runs three times: within the gates, and the same bits each time.
void expect_right(bench::HostProblem& host) {
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  PlanOptions options;
  options.device = {DeviceKind::cuda, 0};
  options.kernel = "forward_sm90";
  const Result<Plan> plan = make_plan(host.problem, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  for (auto& [name, tensor] : host.tensors) {
    if (bench::is_output(name)) tensor.poison();
  }
  Result<cli::Execution> execution = cli::Execution::prepare(*plan, options.device, host);
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
  EXPECT_EQ(bench::judge(host, *reference).failure, "");
}

void for_each_case(const std::function<void(bench::HostProblem&, int64_t head_dim)>& change) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  setenv("FLASHCORE_UNFINISHED", "1", 1);
  uint64_t seed = 900;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const bool causal : {false, true}) {
        bench::HostProblem host =
            bench::make_host_problem(problem_of(dtype, head_dim, causal), seed++);
        change(host, head_dim);
        SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " causal " << causal
                                        << " bf16 " << (dtype == DType::bf16));
        expect_right(host);
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
      [](bench::HostProblem& host, int64_t head_dim) { set_growing(host, head_dim, true); });
}

TEST(ForwardSm90, ScoresThatFallFromBlockToBlock) {
  for_each_case(
      [](bench::HostProblem& host, int64_t head_dim) { set_growing(host, head_dim, false); });
}

TEST(ForwardSm90, OutliersAmongTheKeys) {
  for_each_case([](bench::HostProblem& host, int64_t head_dim) {
    bench::HostTensor& k = host.at("k");
    for_each_element(kKeys, head_dim, [&](int64_t element, int64_t key, int64_t) {
      if (key % 97 == 5) k.set(element, k.get(element) * 10);
    });
  });
}

TEST(ForwardSm90, ValuesThatAreNotFinite) {
  for_each_case([](bench::HostProblem& host, int64_t head_dim) {
    bench::HostTensor& v = host.at("v");
    std::mt19937 random(5);
    for_each_element(kKeys, head_dim, [&](int64_t element, int64_t, int64_t) {
      if (random() % 5000 != 0) return;
      v.set(element, random() % 2 == 0 ? std::numeric_limits<double>::infinity()
                                       : std::numeric_limits<double>::quiet_NaN());
    });
  });
}

}  // namespace
}  // namespace flashcore

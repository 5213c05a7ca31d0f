// forward_small_sm90 on a GPU, against the fp64 reference: from one tile of keys up to rings that
// go round, tails, masks, lengths, values that are not finite, repeatability, early starts.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "bench/cases.hpp"
#include "bench/gates.hpp"
#include "bench/random_problem.hpp"
#include "cli/execution.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore {
namespace {

constexpr const char* kKernel = "forward_small_sm90";
constexpr Device kGpu{DeviceKind::cuda, 0};

PlanOptions options() {
  PlanOptions chosen;
  chosen.device = kGpu;
  chosen.kernel = kKernel;
  return chosen;
}

class ForwardSmallSm90 : public testing::Test {
 protected:
  void SetUp() override {
    for (const DeviceInfo& device : devices()) {
      if (device.device.kind == DeviceKind::cuda && device.device.index == kGpu.index &&
          device.compute_capability == 90) {
        return;
      }
    }
    GTEST_SKIP() << "there is no GPU of compute capability 9.0";
  }
};

// Runs on poisoned outputs; the sentence of the first gate that failed, or nothing.
std::string failure_of(bench::HostProblem& host, const bench::Reference& reference,
                       const PlanOptions& chosen) {
  for (auto& [name, tensor] : host.tensors) {
    if (bench::is_output(name)) tensor.poison();
  }
  const Result<Plan> plan = make_plan(host.problem, chosen);
  if (!plan.ok()) return plan.status().message();
  Result<cli::Execution> execution = cli::Execution::prepare(*plan, kGpu, host);
  if (!execution.ok()) return execution.status().message();
  if (const Status status = execution->run(); !status.ok()) return status.message();
  if (const Status status = execution->fetch(); !status.ok()) return status.message();
  return bench::judge(host, reference).failure;
}

// Gates a problem, then the same again: equal bits.
void check(bench::HostProblem& host, const PlanOptions& chosen = options()) {
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  ASSERT_EQ(failure_of(host, *reference, chosen), "") << bench::describe(host.problem);
  const bench::HostTensor first = host.at("o");
  ASSERT_EQ(failure_of(host, *reference, chosen), "") << bench::describe(host.problem);
  ASSERT_TRUE(host.at("o").same_elements(first)) << bench::describe(host.problem);
}

bench::Case one(int64_t heads, int64_t seqlen_q, int64_t seqlen_kv, int64_t head_dim,
                DType dtype = DType::f16) {
  bench::Case made{.name = "", .dtype = dtype};
  made.heads_q = made.heads_kv = heads;
  made.seqlen_q = seqlen_q;
  made.seqlen_kv = seqlen_kv;
  made.head_dim = head_dim;
  return made;
}

void check_case(const bench::Case& made) {
  bench::HostProblem host = bench::make_host_problem(bench::to_problem(made), 1);
  check(host);
}

TEST_F(ForwardSmallSm90, OneTile) { check_case(one(1, 64, 64, 64)); }
TEST_F(ForwardSmallSm90, OneTileEach) { check_case(one(1, 64, 256, 64)); }
TEST_F(ForwardSmallSm90, TwoTilesEach) { check_case(one(1, 64, 512, 64)); }
TEST_F(ForwardSmallSm90, Mission) { check_case(one(8, 512, 512, 64)); }
TEST_F(ForwardSmallSm90, MissionCausal) {
  bench::Case made = one(8, 512, 512, 64);
  made.causal = true;
  check_case(made);
}
TEST_F(ForwardSmallSm90, MissionBf16) { check_case(one(8, 512, 512, 64, DType::bf16)); }
TEST_F(ForwardSmallSm90, ThreeTilesEach) { check_case(one(1, 64, 768, 64)); }
TEST_F(ForwardSmallSm90, SlotsReused) { check_case(one(2, 128, 2048, 64)); }
TEST_F(ForwardSmallSm90, HeadDim128OneTile) { check_case(one(1, 64, 64, 128)); }
TEST_F(ForwardSmallSm90, HeadDim128) { check_case(one(4, 256, 512, 128)); }
TEST_F(ForwardSmallSm90, HeadDim128SlotsReused) { check_case(one(2, 128, 2048, 128)); }
TEST_F(ForwardSmallSm90, HeadDim96) { check_case(one(2, 128, 256, 96)); }

TEST_F(ForwardSmallSm90, Tails) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int64_t seqlen_q : {1, 63, 65, 130}) {
        for (const int64_t seqlen_kv : {0, 1, 63, 65, 200, 321, 700}) {
          bench::Case made = one(2, seqlen_q, seqlen_kv, head_dim, dtype);
          check_case(made);
          made.causal = true;
          check_case(made);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(ForwardSmallSm90, ValuesThatAreNotFinite) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const char* const name : {"q", "k", "v"}) {
    for (const double value : {kNaN, kInf}) {
      if (value == kInf && std::string(name) != "v") continue;
      for (const int64_t key : {3, 100, 199}) {
        bench::Case made = one(2, 200, 200, 64);
        made.causal = true;
        bench::HostProblem host = bench::make_host_problem(bench::to_problem(made), 5);
        host.at(name).set(key * 64 + 7, value);
        check(host);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Draws until `wanted` problems were accepted, or time is up.
void check_random(const bench::RandomSpace& space, uint64_t seed, int wanted, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  int checked = 0;
  for (; checked < wanted && elapsed() < seconds; ++seed) {
    bench::HostProblem host = bench::random_problem(seed, space);
    if (!make_plan(host.problem, options()).ok()) continue;
    check(host);
    if (testing::Test::HasFatalFailure()) {
      fmt::print("seed {}\n", seed);
      return;
    }
    ++checked;
  }
  fmt::print("{} random problems\n", checked);
  EXPECT_GT(checked, 0);
}

// Device time is dear: the environment says how long to go on.
double seconds_to_spend() {
  const char* const text = std::getenv("FLASHCORE_TEST_SECONDS");
  return text == nullptr ? 60 : std::atof(text);
}

// Lengths and diagonals of each entry's own: entries of 0, 31 and 88 queries, most rows without a
// key.
TEST_F(ForwardSmallSm90, EntriesThatDiffer) {
  bench::HostProblem host = bench::random_problem(1024);
  ASSERT_TRUE(host.problem.seqlens_q && host.problem.causal_offsets);
  check(host);
}

// Not chosen by name: the table's own choice.
TEST_F(ForwardSmallSm90, IsTheChoiceForTheMission) {
  PlanOptions chosen = options();
  chosen.kernel.clear();
  const Problem problem = bench::to_problem(one(8, 512, 512, 64));
  const Result<Plan> plan = make_plan(problem, chosen);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kernel(), kKernel) << plan->reason();
  bench::HostProblem host = bench::make_host_problem(problem, 2);
  check(host, chosen);
}

TEST_F(ForwardSmallSm90, RandomLengthsAndAlignments) {
  bench::RandomSpace space;
  space.any_dtype = space.any_feature = false;
  space.largest_seqlen = 400;
  check_random(space, 0, 150, seconds_to_spend());
}

TEST_F(ForwardSmallSm90, RandomTypesWindowsAndBatches) {
  check_random({}, 1000, 100, seconds_to_spend());
}

// A chain of runs in which each reads what the one before wrote, started early or not: equal bits.
TEST_F(ForwardSmallSm90, EarlyStartsChangeNothing) {
  constexpr int kRuns = 40;
  const Problem problem = bench::to_problem(one(8, 512, 512, 64));
  bench::HostProblem host = bench::make_host_problem(problem, 3);
  const size_t bytes = 8 * 512 * 64 * 2, lse_bytes = 8 * 512 * 4;
  std::vector<uint16_t> results[2];
  for (const bool early : {false, true}) {
    PlanOptions chosen = options();
    chosen.early_start = early;
    const Result<Plan> plan = make_plan(problem, chosen);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    void* tensors[5] = {};  // k, v, two that take turns as q and o, lse
    for (void*& tensor : tensors) ASSERT_EQ(cudaMalloc(&tensor, bytes + lse_bytes), cudaSuccess);
    const auto copy_in = [&](void* to, const char* name) {
      ASSERT_EQ(cudaMemcpy(to, host.at(name).data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
    };
    copy_in(tensors[0], "k"), copy_in(tensors[1], "v"), copy_in(tensors[2], "q");
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    for (int run = 0; run < kRuns; ++run) {
      Arguments args;
      args.k = tensors[0], args.v = tensors[1];
      args.q = tensors[2 + run % 2], args.o = tensors[2 + (run + 1) % 2];
      args.lse = tensors[4];
      const Status status = plan->run(args, nullptr, 0, Stream{stream});
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::vector<uint16_t>& result = results[early ? 1 : 0];
    result.resize(bytes / 2);
    ASSERT_EQ(cudaMemcpy(result.data(), tensors[2 + kRuns % 2], bytes, cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (void* tensor : tensors) (void)cudaFree(tensor);
    (void)cudaStreamDestroy(stream);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace flashcore

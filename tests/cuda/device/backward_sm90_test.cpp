// Kernels of backward_sm90 on scores unlike the scores of N(0, 1) inputs, and several runs of one
// plan at once, in graphs and on streams. Skipped where there is no GPU of compute capability 9.0.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "bench/device/execution.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "bench/tensors/backward_set.hpp"
#include "flashcore/flashcore.hpp"
#include "tests/cuda/device/gpu.hpp"
#include "tests/cuda/device/own_stream.hpp"

namespace flashcore {
namespace {

constexpr int64_t kHeads = 2, kQueries = 200, kKeys = 300;

Problem problem_of(DType dtype, int64_t head_dim, bool causal) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(dtype, {1, kHeads, kQueries, head_dim});
  p.k = p.v = TensorDesc::contiguous(dtype, {1, kHeads, kKeys, head_dim});
  p.lse = TensorDesc::contiguous(DType::f32, {1, kHeads, kQueries});
  p.causal = causal;
  return p;
}

constexpr const char* kSplit = "backward_sm90:split";

// Those that compute a problem. backward_sm90:split has no softcap.
std::vector<const char*> kernels_of(const Problem& p) {
  if (p.q.shape.back() > 128) return {"backward_sm90:wide"};
  if (p.softcap > 0) return {"backward_sm90"};
  return {"backward_sm90", kSplit};
}

Result<Plan> plan_of(const bench::HostBackward& host, bool deterministic, const char* kernel) {
  PlanOptions options;
  options.device = first_gpu();
  options.deterministic = deterministic;
  options.kernel = kernel;
  return make_backward_plan(host.forward.problem, host.gradients, options);
}

std::vector<std::byte> bits_of(const bench::HostBackward& host) {
  std::vector<std::byte> bits;
  for (const char* const name : {"dq", "dk", "dv"}) {
    const auto memory = host.at(name).memory();
    bits.insert(bits.end(), memory.begin(), memory.end());
  }
  return bits;
}

void expect_right(bench::HostBackward& host, const bench::GradientReferences& reference,
                  const char* kernel) {
  SCOPED_TRACE(kernel);
  std::vector<std::byte> first;
  for (const bool deterministic : {true, true, false}) {
    const Result<Plan> plan = plan_of(host, deterministic, kernel);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    bench::poison_outputs(host);
    Result<bench::Execution> execution = bench::Execution::prepare(*plan, first_gpu(), host);
    ASSERT_TRUE(execution.ok()) << execution.status().message();
    ASSERT_TRUE(execution->run().ok());
    const Status fetched = execution->fetch();
    ASSERT_TRUE(fetched.ok()) << fetched.message();
    EXPECT_EQ(bench::judge(host, reference).failure, "");
    if (first.empty()) {
      first = bits_of(host);
    } else if (deterministic) {
      EXPECT_EQ(first, bits_of(host));
    }
  }
}

// Runs each kernel with deterministic additions, twice and with equal bits, and with atomic ones.
void expect_right(bench::HostBackward& host) {
  const Result<bench::GradientReferences> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  for (const char* const kernel : kernels_of(host.forward.problem)) {
    ASSERT_NO_FATAL_FAILURE(expect_right(host, *reference, kernel));
  }
}

using Change = std::function<void(bench::HostProblem& host, int64_t head_dim)>;

void for_each_case(const Change& change) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  uint64_t seed = 300;
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      const DType dtype = ++seed % 2 == 0 ? DType::bf16 : DType::f16;
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " causal " << causal);
      bench::HostProblem forward =
          bench::make_host_problem(problem_of(dtype, head_dim, causal), seed);
      change(forward, head_dim);
      const Gradients gradients = bench::gradients_of(forward.problem, true);
      Result<bench::HostBackward> host =
          bench::make_host_backward(std::move(forward), gradients, seed);
      ASSERT_TRUE(host.ok()) << host.status().message();
      ASSERT_NO_FATAL_FAILURE(expect_right(*host));
    }
  }
}

// Element (row, column) of a [1, kHeads, rows, head_dim] tensor.
void for_each_element(bench::HostTensor& tensor,
                      const std::function<void(int64_t element, int64_t row, int64_t column)>& f) {
  const TensorDesc& desc = tensor.desc();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    f(i, i / desc.shape[3] % desc.shape[2], i % desc.shape[3]);
  }
}

// Keys get larger from the first to the last, or from the last to the first.
void set_growing(bench::HostProblem& host, bool to_the_left) {
  bench::HostTensor& k = host.at("k");
  for_each_element(k, [&](int64_t element, int64_t row, int64_t /*column*/) {
    const double place = static_cast<double>(to_the_left ? kKeys - row : row) / kKeys;
    k.set(element, k.get(element) * 2 * place);
  });
}

TEST(BackwardSm90, ScoresThatGrowFromTileToTile) {
  for_each_case([](bench::HostProblem& host, int64_t) { set_growing(host, false); });
}

TEST(BackwardSm90, ScoresThatFallFromTileToTile) {
  for_each_case([](bench::HostProblem& host, int64_t) { set_growing(host, true); });
}

TEST(BackwardSm90, OutliersAmongTheKeys) {
  for_each_case([](bench::HostProblem& host, int64_t head_dim) {
    bench::HostTensor& k = host.at("k");
    for (const int64_t key : {3, 70, 129, 280}) {
      for (int64_t d = 0; d < head_dim; ++d) {
        k.set(key * head_dim + d, k.get(key * head_dim + d) * 3);
      }
    }
  });
}

// The first 120 queries see no key.
TEST(BackwardSm90, RowsThatSeeNoKey) {
  for_each_case([](bench::HostProblem& host, int64_t) {
    host.problem.causal = true;
    host.problem.alignment = Alignment::given;
    host.problem.causal_offset = -120;
  });
}

// A NaN reaches what sees it, and nothing else.
TEST(BackwardSm90, ValuesThatAreNotFinite) {
  for_each_case([](bench::HostProblem& host, int64_t head_dim) {
    host.problem.causal = true;
    bench::HostTensor& v = host.at("v");
    v.set(290 * head_dim + 5, std::numeric_limits<double>::quiet_NaN());
  });
}

// ---- options, only by name

// Sinks, a softcap, and head dimensions that fill no tile.
TEST(BackwardSm90, SinksSoftcapAndOtherHeadDimensions) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  uint64_t seed = 400;
  for (const int64_t head_dim : {40, 64, 96, 128, 192, 256}) {
    for (const bool softcap : {false, true}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " softcap " << softcap);
      Problem p = problem_of(++seed % 2 == 0 ? DType::bf16 : DType::f16, head_dim, true);
      if (head_dim == 192) {
        p.v = TensorDesc::contiguous(p.q.dtype, {1, kHeads, kKeys, 128});
        p.o = TensorDesc::contiguous(p.q.dtype, {1, kHeads, kQueries, 128});
      }
      p.sinks = TensorDesc::contiguous(DType::f32, {kHeads});
      if (softcap) p.softcap = 5;
      Result<bench::HostBackward> host = bench::make_host_backward(
          bench::make_host_problem(p, seed), bench::gradients_of(p, true), seed);
      ASSERT_TRUE(host.ok()) << host.status().message();
      ASSERT_NO_FATAL_FAILURE(expect_right(*host));
    }
  }
}

// Starts of a packed batch that fall, which only the device can see: no launch hangs, and no
// gradient is anything but 0.
TEST(BackwardSm90, StartsThatFallGiveZeros) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  constexpr int64_t kTotal = 1500, kEntries = 3;
  for (const int64_t head_dim : {64, 128}) {
    Problem p;
    p.q = p.o = TensorDesc::contiguous(DType::bf16, {kTotal, kHeads, head_dim});
    p.k = p.v = TensorDesc::contiguous(DType::bf16, {kTotal, kHeads, head_dim});
    p.lse = TensorDesc::contiguous(DType::f32, {kTotal, kHeads});
    p.cu_seqlens_q = p.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {kEntries + 1});
    Result<bench::HostBackward> host = bench::make_host_backward(
        bench::make_host_problem(p, 500), bench::gradients_of(p, false), 500);
    ASSERT_TRUE(host.ok()) << host.status().message();
    for (const char* const name : {"cu_seqlens_q", "cu_seqlens_kv"}) {
      constexpr double kFalling[] = {0, 1400, 300, 1500};
      for (int64_t i = 0; i <= kEntries; ++i) host->forward.at(name).set(i, kFalling[i]);
    }
    const Result<Plan> plan = plan_of(*host, true, "backward_sm90");
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    bench::poison_outputs(*host);
    Result<bench::Execution> execution = bench::Execution::prepare(*plan, first_gpu(), *host);
    ASSERT_TRUE(execution.ok()) << execution.status().message();
    ASSERT_TRUE(execution->run().ok());
    const Status fetched = execution->fetch();
    ASSERT_TRUE(fetched.ok()) << fetched.message();
    for (const char* const name : {"dq", "dk", "dv"}) {
      const bench::HostTensor& found = host->at(name);
      for (int64_t i = 0; i < found.elements(); ++i) ASSERT_EQ(found.get(i), 0) << name << " " << i;
    }
  }
}

// ---- several runs of one plan

bench::HostBackward many_tiles(int64_t head_dim, bool causal, uint64_t seed) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::bf16, {1, 4, 260, head_dim});
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {1, 2, 260, head_dim});
  p.lse = TensorDesc::contiguous(DType::f32, {1, 4, 260});
  p.causal = causal;
  Result<bench::HostBackward> host = bench::make_host_backward(bench::make_host_problem(p, seed),
                                                               bench::gradients_of(p, false), seed);
  EXPECT_TRUE(host.ok()) << host.status().message();
  return std::move(*host);
}

// One plan's runs on inputs of two seeds, and what they give when they run alone.
class TwoRuns {
 public:
  TwoRuns(int64_t head_dim, bool causal, bool split) {
    for (const uint64_t seed : {21, 22}) hosts_.push_back(many_tiles(head_dim, causal, seed));
    const std::vector<const char*> kernels = kernels_of(hosts_[0].forward.problem);
    const Result<Plan> plan = plan_of(hosts_[0], true, split ? kernels.back() : kernels.front());
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    for (bench::HostBackward& host : hosts_) {
      bench::poison_outputs(host);
      Result<bench::Execution> execution = bench::Execution::prepare(*plan, first_gpu(), host);
      EXPECT_TRUE(execution.ok()) << execution.status().message();
      executions_.push_back(std::move(*execution));
      EXPECT_TRUE(executions_.back().run().ok());
      EXPECT_TRUE(executions_.back().fetch().ok());
      alone_.push_back(bits_of(host));
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  bench::Execution& operator[](size_t i) { return executions_[i]; }

  void expect_same(size_t i) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    bench::poison_outputs(hosts_[i]);
    EXPECT_TRUE(executions_[i].fetch().ok());
    EXPECT_EQ(alone_[i], bits_of(hosts_[i])) << "inputs " << i;
  }

 private:
  std::vector<bench::HostBackward> hosts_;
  std::vector<bench::Execution> executions_;
  std::vector<std::vector<std::byte>> alone_;
};

// Head dimensions, and whether by backward_sm90:split.
constexpr std::pair<int64_t, bool> kRuns[] = {
    {64, false}, {128, false}, {256, false}, {64, true}, {128, true}};

TEST(BackwardSm90, RunsOfOnePlanOnTwoStreamsDoNotDisturbEachOther) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  for (const auto& [head_dim, split] : kRuns) {
    TwoRuns runs(head_dim, true, split);
    const OwnStream streams[2];
    for (int i = 0; i < 3; ++i) {
      for (size_t r = 0; r < 2; ++r) EXPECT_TRUE(runs[r].run({streams[r].get()}).ok());
    }
    for (size_t r = 0; r < 2; ++r) runs.expect_same(r);
  }
}

// Capture fails on any allocation or synchronisation.
TEST(BackwardSm90, AGraphOfItReplays) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  for (const auto& [head_dim, split] : kRuns) {
    TwoRuns runs(head_dim, true, split);
    const OwnStream stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), cudaSuccess);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(runs[0].run({stream.get()}).ok());
    ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
    runs.expect_same(0);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
}

}  // namespace
}  // namespace flashcore

// What forward_sm80_throughput promises besides the right numbers, on a GPU: repeatable bits that
// do not depend on the batch, graphs that replay on new inputs, launches that neither allocate nor
// wait.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/device_tensors.hpp"
#include "tests/cuda/device/gpu.hpp"
#include "tests/cuda/device/own_stream.hpp"

namespace flashcore {
namespace {

const Device kGpu = first_gpu();

bool has_gpu() {
  int count = 0, major = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  return major >= 8;
}

void poison(bench::HostProblem& host) { bench::poison_outputs(host); }

// What is tested: each kernel on types and head dimensions of its own.
struct Subject {
  std::string kernel;
  DType dtype;
  int64_t head_dim;
  int64_t seqlen_q;
  bool features;
  int64_t seqlen_kv = 777;
};

std::ostream& operator<<(std::ostream& out, const Subject& s) {
  return out << s.kernel << " " << to_string(s.dtype) << " " << s.head_dim << " Sq " << s.seqlen_q
             << " Skv " << s.seqlen_kv << (s.features ? " features" : "");
}

Problem problem_of(const Subject& s, int64_t batch) {
  constexpr int64_t kHeads = 4, kKvHeads = 2;
  const int64_t keys = s.seqlen_kv;
  Problem p;
  p.q = p.o = TensorDesc::contiguous(s.dtype, {batch, kHeads, s.seqlen_q, s.head_dim});
  p.k = p.v = TensorDesc::contiguous(s.dtype, {batch, kKvHeads, keys, s.head_dim});
  p.lse = TensorDesc::contiguous(DType::f32, {batch, kHeads, s.seqlen_q});
  p.causal = true;
  if (s.features) {
    p.softcap = 20;
    p.bias = TensorDesc::contiguous(DType::f32, {1, kHeads, 1, keys});
    p.sinks = TensorDesc::contiguous(DType::f32, {kHeads});
  }
  return p;
}

Plan plan_of(const Subject& s, const Problem& problem) {
  PlanOptions options;
  options.device = kGpu;
  options.kernel = s.kernel;
  options.batch_invariant = true;
  const Result<Plan> plan = make_plan(problem, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

class ForwardSm80Device : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU of compute capability 8.0 or later";
  }
};

// Runs once on fresh device tensors; the outputs are in `host` afterwards.
void run_once(const Plan& plan, bench::HostProblem& host, int workspace_fill = 0) {
  poison(host);
  const DeviceTensors tensors(host);
  const Workspace workspace(plan.workspace_bytes(), workspace_fill);
  const Status status = plan.run(tensors.arguments(host), workspace.data(), workspace.bytes());
  ASSERT_TRUE(status.ok()) << status.message();
  tensors.download_outputs(host);
}

TEST_P(ForwardSm80Device, PassesItsGate) {
  bench::HostProblem host = bench::make_host_problem(problem_of(GetParam(), 2), 3);
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  run_once(plan_of(GetParam(), host.problem), host);
  const bench::Verdict verdict = bench::judge(host, *reference);
  EXPECT_TRUE(verdict.passed) << verdict.failure;
}

// Dropout multiplies by 0: an infinity of V is NaN where its pair is dropped, itself where it is
// kept.
TEST_P(ForwardSm80Device, ADroppedInfinityIsNaN) {
  Problem problem = problem_of(GetParam(), 2);
  problem.dropout_p = 0.5;
  bench::HostProblem host = bench::make_host_problem(problem, 8);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  bench::HostTensor& v = host.at("v");
  for (int64_t key = 0, column = 0; key < 8; ++key, ++column) {
    const bool nan = key % 3 == 2;
    v.set(key * GetParam().head_dim + column,
          nan ? std::numeric_limits<double>::quiet_NaN() : (key % 3 == 0 ? kInfinity : -kInfinity));
  }
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  run_once(plan_of(GetParam(), host.problem), host);
  const bench::Verdict verdict = bench::judge(host, *reference);
  EXPECT_TRUE(verdict.passed) << verdict.failure;
}

// A row is NaN by a NaN in its query, or by its sink, whatever infinity its keys have in V.
TEST_P(ForwardSm80Device, ANaNStaysBesideAnInfinity) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double sink : {0.0, kNaN, kInfinity}) {
    Problem problem = problem_of(GetParam(), 1);
    problem.causal = false;
    problem.sinks = TensorDesc::contiguous(DType::f32, {problem.q.shape[1]});
    bench::HostProblem host = bench::make_host_problem(problem, 9);
    host.at("sinks").set(1, sink);
    host.at("q").set(0, kNaN);
    for (int64_t key = 0; key < 4; ++key) {
      host.at("v").set(key * GetParam().head_dim + key, key % 2 == 0 ? kInfinity : -kInfinity);
    }
    const Result<bench::Reference> reference = bench::compute_reference(host);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    run_once(plan_of(GetParam(), host.problem), host);
    const bench::Verdict verdict = bench::judge(host, *reference);
    EXPECT_TRUE(verdict.passed) << "sink " << sink << ": " << verdict.failure;
  }
}

TEST_P(ForwardSm80Device, GivesTheSameBitsEveryTimeWhateverTheWorkspaceHeld) {
  bench::HostProblem host = bench::make_host_problem(problem_of(GetParam(), 2), 4);
  const Plan plan = plan_of(GetParam(), host.problem);
  run_once(plan, host);
  const Outputs first = outputs_of(host);
  for (const int fill : {0xFF, 0x7F, 0x00}) {
    run_once(plan, host, fill);
    EXPECT_TRUE(outputs_of(host) == first) << "workspace of bytes " << fill;
  }
}

// Entry b of a contiguous tensor of `batch` entries.
void copy_entry(const bench::HostTensor& from, bench::HostTensor& to, int64_t b) {
  for (int64_t i = 0; i < to.elements(); ++i) to.set(i, from.get(b * to.elements() + i));
}

TEST_P(ForwardSm80Device, ARowAloneHasTheBitsThatItHasInABatch) {
  constexpr int64_t kBatch = 5;
  bench::HostProblem all = bench::make_host_problem(problem_of(GetParam(), kBatch), 5);
  run_once(plan_of(GetParam(), all.problem), all);
  bench::HostProblem one = bench::make_host_problem(problem_of(GetParam(), 1), 6);
  const Plan plan = plan_of(GetParam(), one.problem);
  for (const int64_t b : {int64_t{0}, int64_t{2}, kBatch - 1}) {
    for (auto& [name, tensor] : one.tensors) {
      const bool shared = name == "bias" || name == "sinks";
      if (!bench::is_output(name)) copy_entry(all.at(name), tensor, shared ? 0 : b);
    }
    run_once(plan, one);
    for (const char* const name : {"o", "lse"}) {
      const bench::HostTensor& alone = one.at(name);
      for (int64_t i = 0; i < alone.elements(); ++i) {
        const double batched = all.at(name).get(b * alone.elements() + i);
        ASSERT_EQ(alone.get(i), batched) << name << " element " << i << " of entry " << b;
      }
    }
  }
}

// Capture in the global mode fails on any allocation or synchronisation.
TEST_P(ForwardSm80Device, AGraphOfItReplaysOnNewInputs) {
  bench::HostProblem host = bench::make_host_problem(problem_of(GetParam(), 2), 7);
  const Plan plan = plan_of(GetParam(), host.problem);
  poison(host);
  DeviceTensors tensors(host);
  const Workspace workspace(plan.workspace_bytes(), 0);
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  const Status status =
      plan.run(tensors.arguments(host), workspace.data(), workspace.bytes(), Stream{stream.get()});
  EXPECT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const uint64_t seed : {7, 8, 9}) {
    bench::HostProblem now = bench::make_host_problem(problem_of(GetParam(), 2), seed);
    run_once(plan, now);
    const Outputs wanted = outputs_of(now);
    poison(now);
    tensors.upload(now);
    ASSERT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
    tensors.download_outputs(now);
    EXPECT_TRUE(outputs_of(now) == wanted) << "inputs of seed " << seed;
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_P(ForwardSm80Device, TwoStreamsDoNotDisturbEachOther) {
  std::vector<bench::HostProblem> hosts;
  std::vector<Outputs> wanted;
  for (const uint64_t seed : {10, 11}) {
    hosts.push_back(bench::make_host_problem(problem_of(GetParam(), 2), seed));
    run_once(plan_of(GetParam(), hosts.back().problem), hosts.back());
    wanted.push_back(outputs_of(hosts.back()));
    poison(hosts.back());
  }
  const Plan plan = plan_of(GetParam(), hosts[0].problem);  // one plan, two runs at once
  const DeviceTensors first(hosts[0]), second(hosts[1]);
  const Workspace workspace0(plan.workspace_bytes(), 0), workspace1(plan.workspace_bytes(), 0);
  const OwnStream stream0, stream1;
  const Arguments args0 = first.arguments(hosts[0]), args1 = second.arguments(hosts[1]);
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(plan.run(args0, workspace0.data(), workspace0.bytes(), Stream{stream0.get()}).ok());
    EXPECT_TRUE(plan.run(args1, workspace1.data(), workspace1.bytes(), Stream{stream1.get()}).ok());
  }
  first.download_outputs(hosts[0]);
  second.download_outputs(hosts[1]);
  EXPECT_TRUE(outputs_of(hosts[0]) == wanted[0]);
  EXPECT_TRUE(outputs_of(hosts[1]) == wanted[1]);
}

// Dropout with its seed in memory against the kernel that takes it as a number.
class DropoutState : public ForwardSm80Device {
 protected:
  void SetUp() override {
    ForwardSm80Device::SetUp();
    Problem problem = problem_of(GetParam(), 1);
    problem.dropout_p = 0.4F;
    numbers_ = bench::make_host_problem(problem, 12);
    problem.dropout_state = TensorDesc::strided(DType::i64, {2}, {3});
    memory_ = bench::make_host_problem(problem, 12);
  }

  static Plan plan(const bench::HostProblem& host, const std::string& kernel) {
    PlanOptions options;
    options.device = kGpu;
    options.kernel = kernel;
    const Result<Plan> plan = make_plan(host.problem, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *plan;
  }

  // The next draw, as numbers and in memory; the other's numbers are of another one.
  void draw(uint64_t seed) {
    numbers_.dropout_seed = memory_.dropout_seed = seed;
    numbers_.dropout_offset = memory_.dropout_offset = ~(seed << 1);
    bench::fill_dropout_state(memory_);
    memory_.dropout_seed = memory_.dropout_offset = 0;
  }

  bench::HostProblem numbers_, memory_;
};

constexpr uint64_t kSeeds[] = {1, 2, uint64_t{1} << 63};

TEST_P(DropoutState, GivesTheBitsOfNumbers) {
  const Plan wanted = plan(numbers_, GetParam().kernel);
  const Plan reads = plan(memory_, GetParam().kernel);
  Outputs last;
  for (const uint64_t seed : kSeeds) {
    draw(seed);
    run_once(wanted, numbers_);
    run_once(reads, memory_);
    EXPECT_TRUE(outputs_of(memory_) == outputs_of(numbers_)) << "seed " << seed;
    EXPECT_FALSE(outputs_of(memory_) == last) << "seed " << seed;
    last = outputs_of(memory_);
  }
}

TEST_P(DropoutState, IsReadByEachReplayOfAGraph) {
  const Plan wanted = plan(numbers_, GetParam().kernel);
  const Plan reads = plan(memory_, GetParam().kernel);
  DeviceTensors tensors(memory_);
  const Workspace workspace(reads.workspace_bytes(), 0);
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  const Status status = reads.run(tensors.arguments(memory_), workspace.data(), workspace.bytes(),
                                  Stream{stream.get()});
  EXPECT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const uint64_t seed : kSeeds) {
    draw(seed);
    run_once(wanted, numbers_);
    poison(memory_);
    tensors.upload(memory_);
    ASSERT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
    tensors.download_outputs(memory_);
    EXPECT_TRUE(outputs_of(memory_) == outputs_of(numbers_)) << "seed " << seed;
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// One of each compiled kernel; the last two cut the keys into splits.
INSTANTIATE_TEST_SUITE_P(
    Family, DropoutState,
    testing::Values(Subject{"forward_sm80_throughput", DType::f16, 64, 300, false},
                    Subject{"forward_sm80_throughput", DType::bf16, 64, 70, true, 300},
                    Subject{"forward_sm80_throughput", DType::f16, 128, 70, true, 300},
                    Subject{"forward_sm80_throughput", DType::bf16, 128, 100, false, 300},
                    Subject{"forward_sm80_throughput", DType::f16, 192, 50, false, 200},
                    Subject{"forward_sm80_throughput", DType::bf16, 192, 50, true, 200},
                    Subject{"forward_sm80_throughput", DType::f16, 256, 50, true, 200},
                    Subject{"forward_sm80_throughput", DType::bf16, 256, 50, false, 200},
                    Subject{"forward_sm80_throughput:f32", DType::f32, 64, 70, true, 200},
                    Subject{"forward_sm80_throughput:f32", DType::f32, 128, 70, false, 200},
                    Subject{"forward_sm80_throughput:f32", DType::f32, 256, 50, false, 200},
                    Subject{"forward_sm80_throughput", DType::f16, 128, 3, false, 2100},
                    Subject{"forward_sm80_throughput:f32", DType::f32, 64, 5, true, 2100}));

INSTANTIATE_TEST_SUITE_P(
    Family, ForwardSm80Device,
    testing::Values(Subject{"forward_sm80_throughput", DType::f16, 64, 300, false},
                    Subject{"forward_sm80_throughput", DType::bf16, 128, 300, true},
                    Subject{"forward_sm80_throughput", DType::f16, 256, 130, false},
                    Subject{"forward_sm80_throughput:f32", DType::f32, 64, 100, false},
                    Subject{"forward_sm80_throughput:f32", DType::f32, 200, 70, true},
                    Subject{"forward_sm80_throughput", DType::f16, 128, 130, true, 800},
                    Subject{"forward_sm80_throughput", DType::bf16, 128, 1, false, 5000},
                    Subject{"forward_sm80_throughput", DType::f16, 64, 5, true, 2100},
                    Subject{"forward_sm80_throughput:f32", DType::f32, 64, 2, false, 2100},
                    Subject{"forward_sm80_throughput:split_kv", DType::f16, 128, 1, false},
                    Subject{"forward_sm80_throughput:split_kv", DType::bf16, 64, 16, true},
                    Subject{"forward_sm80_throughput:split_kv", DType::f32, 128, 7, true},
                    Subject{"forward_sm80_throughput:split_kv", DType::f16, 64, 200, false}));

}  // namespace
}  // namespace flashcore

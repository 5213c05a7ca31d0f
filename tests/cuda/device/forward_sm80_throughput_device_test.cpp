// forward_sm80_throughput on a GPU: values that are not finite, dropout with its seed in memory, the largest scores.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/device_tensors.hpp"
#include "tests/cuda/device/promises.hpp"

namespace flashcore {
namespace {

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

PlanOptions options_of(const Subject& s) {
  PlanOptions options = on_gpu(s.kernel);
  options.batch_invariant = true;
  return options;
}

class ForwardSm80Device : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (!runs_here(GetParam().kernel)) GTEST_SKIP() << "no GPU of compute capability 8.0 or later";
  }
};

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
  expect_its_gate(options_of(GetParam()), host);
}

// Scores of any sign; heads with a score that is NaN or +inf, with infinities of V, and without a key.
TEST_P(ForwardSm80Device, TheLargestScoresPassTheirGate) {
  const Subject& s = GetParam();
  if (s.kernel != "forward_sm80_throughput") GTEST_SKIP() << "has no such output";
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const bool of_batch : {false, true}) {
    Problem problem = problem_of(s, 3);
    problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {3});
    problem.max_logit = TensorDesc::contiguous(DType::f32, {of_batch ? 1 : 3, of_batch ? 1 : 4});
    for (const float scale : {-0.3F, 0.2F}) {
      problem.softmax_scale = scale;
      bench::HostProblem host = bench::make_host_problem(problem, 17);
      const auto keys = static_cast<double>(s.seqlen_kv);
      host.at("seqlens_kv").set(0, keys);
      host.at("seqlens_kv").set(1, std::floor(keys / 2));
      host.at("seqlens_kv").set(2, 0);
      SCOPED_TRACE(testing::Message() << "scale " << scale << (of_batch ? ", of all" : ""));
      expect_its_gate(options_of(s), host);
      for (int64_t i = 0; i < s.head_dim; ++i)
        host.at("v").set(i, i % 2 == 0 ? kInfinity : -kInfinity);
      host.at("q").set(0, std::numeric_limits<double>::quiet_NaN());
      expect_its_gate(options_of(s), host);
      host.at("q").set(0, kInfinity);
      expect_its_gate(options_of(s), host);
    }
  }
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
    SCOPED_TRACE(testing::Message() << "sink " << sink);
    expect_its_gate(options_of(GetParam()), host);
  }
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
  const PlanOptions options = on_gpu(GetParam().kernel);
  const Plan wanted = plan_of(numbers_, options), reads = plan_of(memory_, options);
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
  const PlanOptions options = on_gpu(GetParam().kernel);
  const Plan wanted = plan_of(numbers_, options), reads = plan_of(memory_, options);
  DeviceTensors tensors(memory_);
  const Workspace workspace(reads.workspace_bytes(), 0);
  const OwnStream stream;
  const Graph graph(stream.get(), [&] {
    const Status status = reads.run(tensors.arguments(memory_), workspace.data(), workspace.bytes(),
                                    Stream{stream.get()});
    EXPECT_TRUE(status.ok()) << status.message();
  });
  for (const uint64_t seed : kSeeds) {
    draw(seed);
    run_once(wanted, numbers_);
    bench::poison_outputs(memory_);
    tensors.upload(memory_);
    graph.launch();
    tensors.download_outputs(memory_);
    EXPECT_TRUE(outputs_of(memory_) == outputs_of(numbers_)) << "seed " << seed;
  }
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

const Subject kSubjects[] = {{"forward_sm80_throughput", DType::f16, 64, 300, false},
                             {"forward_sm80_throughput", DType::bf16, 128, 300, true},
                             {"forward_sm80_throughput", DType::f16, 256, 130, false},
                             {"forward_sm80_throughput:f32", DType::f32, 64, 100, false},
                             {"forward_sm80_throughput:f32", DType::f32, 200, 70, true},
                             {"forward_sm80_throughput", DType::f16, 128, 130, true, 800},
                             {"forward_sm80_throughput", DType::bf16, 128, 1, false, 5000},
                             {"forward_sm80_throughput", DType::f16, 64, 5, true, 2100},
                             {"forward_sm80_throughput:f32", DType::f32, 64, 2, false, 2100},
                             {"forward_sm80_throughput:split_kv", DType::f16, 128, 1, false},
                             {"forward_sm80_throughput:split_kv", DType::bf16, 64, 16, true},
                             {"forward_sm80_throughput:split_kv", DType::f32, 128, 7, true},
                             {"forward_sm80_throughput:split_kv", DType::f16, 64, 200, false}};
INSTANTIATE_TEST_SUITE_P(Family, ForwardSm80Device, testing::ValuesIn(kSubjects));

std::vector<Promised> promises() {
  std::vector<Promised> all;
  for (const Subject& s : kSubjects) {
    const auto make = [s](int64_t batch, uint64_t seed) {
      return bench::make_host_problem(problem_of(s, batch), seed);
    };
    all.push_back({testing::PrintToString(s), options_of(s), make, true});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(ForwardSm80, Promises, testing::ValuesIn(promises()));

}  // namespace
}  // namespace flashcore

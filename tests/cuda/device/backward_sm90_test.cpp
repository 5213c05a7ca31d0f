// Kernels of backward_sm90 on scores unlike the scores of N(0, 1) inputs. Skipped where there is no GPU of compute
// capability 9.0.
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
#include "tests/cuda/device/promises.hpp"

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

// Those that compute a problem. backward_sm90:split has no softcap.
std::vector<const char*> kernels_of(const Problem& p) {
  if (p.q.shape.back() > 128) return {"backward_sm90:wide"};
  if (p.softcap > 0) return {"backward_sm90"};
  return {"backward_sm90", "backward_sm90:split"};
}

PlanOptions options_of(const char* kernel, bool deterministic) {
  PlanOptions options = on_gpu(kernel);
  options.deterministic = deterministic;
  return options;
}

// The outputs are in `host` afterwards.
void run_on_gpu(bench::HostBackward& host, const PlanOptions& options) {
  bench::poison_outputs(host);
  Result<bench::Execution> execution =
      bench::Execution::prepare(plan_of(host, options), first_gpu(), host);
  ASSERT_TRUE(execution.ok()) << execution.status().message();
  ASSERT_TRUE(execution->run().ok());
  const Status fetched = execution->fetch();
  ASSERT_TRUE(fetched.ok()) << fetched.message();
}

void expect_right(bench::HostBackward& host, const bench::GradientReferences& reference,
                  const char* kernel) {
  SCOPED_TRACE(kernel);
  Outputs first;
  for (const bool deterministic : {true, true, false}) {
    ASSERT_NO_FATAL_FAILURE(run_on_gpu(host, options_of(kernel, deterministic)));
    EXPECT_EQ(bench::judge(host, reference).failure, "");
    if (first.empty()) {
      first = outputs_of(host);
    } else if (deterministic) {
      EXPECT_EQ(first, outputs_of(host));
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
    ASSERT_NO_FATAL_FAILURE(run_on_gpu(*host, options_of("backward_sm90", true)));
    for (const char* const name : {"dq", "dk", "dv"}) {
      const bench::HostTensor& found = host->at(name);
      for (int64_t i = 0; i < found.elements(); ++i) ASSERT_EQ(found.get(i), 0) << name << " " << i;
    }
  }
}

std::vector<Promised> promises() {
  std::vector<Promised> all;
  for (const int64_t head_dim : {64, 128, 256}) {
    Problem p;
    p.q = p.o = TensorDesc::contiguous(DType::bf16, {1, 4, 260, head_dim});
    p.k = p.v = TensorDesc::contiguous(DType::bf16, {1, 2, 260, head_dim});
    p.lse = TensorDesc::contiguous(DType::f32, {1, 4, 260});
    p.causal = true;
    const auto make = [p](int64_t, uint64_t seed) {
      Result<bench::HostBackward> host = bench::make_host_backward(
          bench::make_host_problem(p, seed), bench::gradients_of(p, false), seed);
      EXPECT_TRUE(host.ok()) << host.status().message();
      return std::move(*host);
    };
    for (const char* const kernel : kernels_of(p)) {
      all.push_back({std::to_string(head_dim), options_of(kernel, true), make});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(BackwardSm90, Promises, testing::ValuesIn(promises()));

}  // namespace
}  // namespace flashcore

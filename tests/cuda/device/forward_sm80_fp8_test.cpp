// forward_sm80_throughput:fp8 by the gates of fp16, which its products have: fp8 of either kind, scales of every
// kind, hard scales and values, O of fp8, the largest values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/device_tensors.hpp"
#include "tests/cuda/device/promises.hpp"

namespace flashcore {
namespace {

constexpr const char* kKernel = "forward_sm80_throughput:fp8";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQueries = 70, kKeys = 150;

struct Subject {
  DType inputs, o;
  int64_t head_dim_qk, head_dim_v;
  int64_t scale_block;  // keys; 0: one scale for a head
  DType of_kv = inputs;
};

std::ostream& operator<<(std::ostream& out, const Subject& s) {
  return out << to_string(s.inputs) << " " << to_string(s.of_kv) << " " << to_string(s.o) << " "
             << s.head_dim_qk << "/" << s.head_dim_v << " scales of " << s.scale_block;
}

TensorDesc of_heads(int64_t batch, int64_t heads) {
  return TensorDesc::contiguous(DType::f32, {batch, heads});
}

Problem problem_of(const Subject& s) {
  Problem p;
  p.q = TensorDesc::contiguous(s.inputs, {kBatch, kHeads, kQueries, s.head_dim_qk});
  p.k = TensorDesc::contiguous(s.of_kv, {kBatch, kKvHeads, kKeys, s.head_dim_qk});
  p.v = TensorDesc::contiguous(s.of_kv, {kBatch, kKvHeads, kKeys, s.head_dim_v});
  p.o = TensorDesc::contiguous(s.o, {kBatch, kHeads, kQueries, s.head_dim_v});
  p.lse = TensorDesc::contiguous(DType::f32, {kBatch, kHeads, kQueries});
  p.q_scale = of_heads(kBatch, kHeads);
  p.kv_scale_block = s.scale_block;
  const int64_t blocks = s.scale_block == 0 ? 1 : (kKeys + s.scale_block - 1) / s.scale_block;
  p.k_scale = p.v_scale = TensorDesc::contiguous(DType::f32, {kBatch, kKvHeads, blocks});
  p.causal = true;
  if (s.o == DType::f8e4m3 || s.o == DType::f8e5m2) {
    p.o_scale = of_heads(1, kHeads);
    p.amax_o = of_heads(kBatch, kHeads);
    p.amax_s = of_heads(1, kHeads);
  }
  return p;
}

// Inputs from N(0, 1), scales around 1.
bench::HostProblem host_of(const Problem& problem, uint64_t seed) {
  bench::HostProblem host = bench::make_host_problem(problem, seed);
  int64_t n = static_cast<int64_t>(seed);
  for (const char* const name : {"q_scale", "k_scale", "v_scale", "o_scale"}) {
    if (host.has(name))
      host.at(name).fill([&] { return 0.5 + 0.1 * static_cast<double>(n++ % 7); });
  }
  return host;
}

// The limits for fp16, or for an O of bf16, without a naive computation to compare with.
bench::GateLimits limits_for(DType o) {
  bench::GateLimits limits = bench::gate_limits(o == DType::bf16 ? o : DType::f16);
  limits.naive_allowance.reset();
  return limits;
}

void expect_right(bench::HostProblem& host) {
  expect_its_gate(on_gpu(kKernel), host, limits_for(host.problem.o.dtype));
}

class ForwardSm80Fp8 : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (!runs_here(kKernel)) GTEST_SKIP() << "no GPU of compute capability 8.0 or later";
  }
};

TEST_P(ForwardSm80Fp8, PassesTheGateOfFp16WithEveryOption) {
  Problem problem = problem_of(GetParam());
  problem.softcap = 20;
  problem.bias = TensorDesc::contiguous(DType::f32, {1, kHeads, 1, kKeys});
  problem.mask = TensorDesc::contiguous(DType::boolean, {kBatch, 1, kQueries, kKeys});
  problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {kHeads});
  problem.sinks = TensorDesc::contiguous(DType::f32, {kHeads});
  problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {kBatch});
  problem.dropout_p = 0.2F;
  bench::HostProblem host = host_of(problem, 2);
  host.at("seqlens_kv").set(0, 91);
  host.at("seqlens_kv").set(1, 0);
  expect_right(host);
}

// Far apart, so that small ones are lost next to large ones where P has only fp16's range.
TEST_P(ForwardSm80Fp8, TakesScalesOfAnySizeAndSign) {
  bench::HostProblem host = host_of(problem_of(GetParam()), 3);
  bench::HostTensor& k = host.at("k_scale");
  bench::HostTensor& v = host.at("v_scale");
  for (int64_t i = 0; i < k.elements(); ++i) {
    k.set(i, std::exp2(static_cast<double>(i % 5) - 4) * (i % 3 == 0 ? -1 : 1));
    v.set(i, std::exp2(static_cast<double>(i % 17) - 14) * (i % 2 == 0 ? -1 : 1));
  }
  v.set(1, 0);
  expect_right(host);
}

TEST_P(ForwardSm80Fp8, AScaleThatIsNotFiniteReachesTheRowsThatSeeIt) {
  bench::HostProblem host = host_of(problem_of(GetParam()), 4);
  bench::HostTensor& v = host.at("v_scale");
  v.set(v.elements() - 1, kNaN);
  v.set(v.elements() / 2 - 1, kInfinity);
  bench::HostTensor& values = host.at("v");
  for (int64_t i = 0; i < values.elements(); ++i) {
    if (values.get(i) == 0) values.set(i, 1);  // 0 times an infinity would be most of the answer
  }
  expect_right(host);
}

// Scores past what fp16 holds, and past fp32's exponents where they are added up carelessly.
TEST_P(ForwardSm80Fp8, TakesScoresPastFp16) {
  bench::HostProblem host = host_of(problem_of(GetParam()), 5);
  bench::HostTensor& q = host.at("q");
  bench::HostTensor& k = host.at("k");
  const int64_t columns = GetParam().head_dim_qk;
  for (int64_t i = 0; i < q.elements(); ++i) q.set(i, i % columns == 3 ? 64 : 0);
  for (int64_t i = 0; i < k.elements(); ++i) {
    k.set(i, i % columns == 3 ? static_cast<double>(i / columns % 4 - 2) : 0);
  }
  host.at("q_scale").fill([] { return 1e4; });
  host.at("k_scale").fill([] { return 1e4; });
  expect_right(host);
}

TEST_P(ForwardSm80Fp8, NaNStaysInItsRows) {
  bench::HostProblem host = host_of(problem_of(GetParam()), 6);
  const int64_t columns = GetParam().head_dim_v;
  host.at("v").set((kKeys - 1) * columns + 2, kNaN);  // the last query alone sees it
  host.at("k").set(3 * GetParam().head_dim_qk, kNaN);
  host.at("q").set(0, kNaN);
  expect_right(host);
}

constexpr Subject kSubjects[] = {{DType::f8e4m3, DType::f16, 64, 64, 0},
                                 {DType::f8e5m2, DType::bf16, 128, 128, 1},
                                 {DType::f8e4m3, DType::f32, 192, 128, 16},
                                 {DType::f8e5m2, DType::f16, 256, 256, 0},
                                 {DType::f8e4m3, DType::f8e4m3, 72, 40, 1},
                                 {DType::f8e4m3, DType::f8e5m2, 128, 128, 0},
                                 {DType::f8e4m3, DType::f16, 64, 64, 0, DType::f8e5m2},
                                 {DType::f8e5m2, DType::f32, 72, 40, 1, DType::f8e4m3}};
INSTANTIATE_TEST_SUITE_P(Family, ForwardSm80Fp8, testing::ValuesIn(kSubjects));

// Inputs of other seeds have left other largest values.
std::vector<Promised> promises() {
  std::vector<Promised> all;
  for (const Subject& s : kSubjects) {
    const auto make = [s](int64_t, uint64_t seed) { return host_of(problem_of(s), seed); };
    all.push_back({testing::PrintToString(s), on_gpu(kKernel), make, false, limits_for(s.o)});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(ForwardSm80Fp8, Promises, testing::ValuesIn(promises()));

}  // namespace
}  // namespace flashcore

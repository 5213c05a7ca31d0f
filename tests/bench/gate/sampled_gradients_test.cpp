// The sampled gate of gradients: its reference equals the one of whole gradients, and it detects
// errors in the rows that it judges.
#include "bench/gate/sampled_gradients.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "bench/gate/gradient_rows.hpp"
#include "bench/tensors/backward_set.hpp"
#include "tests/problem_count.hpp"

namespace flashcore::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Problem problem_of(DType dtype, int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seqlen_q,
                   int64_t seqlen_kv, int64_t head_dim) {
  Problem problem;
  problem.q = problem.o = TensorDesc::contiguous(dtype, {batch, heads_q, seqlen_q, head_dim});
  problem.k = problem.v = TensorDesc::contiguous(dtype, {batch, heads_kv, seqlen_kv, head_dim});
  problem.lse = TensorDesc::contiguous(DType::f32, {batch, heads_q, seqlen_q});
  return problem;
}

Gradients plain(const Problem& problem, bool d_lse = false) {
  Gradients gradients = gradients_of(problem, d_lse);
  gradients.d_bias.reset(), gradients.d_sinks.reset(), gradients.d_alibi_slopes.reset();
  return gradients;
}

const HostTensor& tensor_of(const HostBackward& host, std::string_view name) {
  return host.forward.has(name) ? host.forward.at(name) : host.at(name);
}

ReadElements reader_of(const HostBackward& host) {
  return [&host](std::string_view name, int64_t begin, HostTensor& to) {
    const HostTensor& from = tensor_of(host, name);
    for (int64_t i = 0; i < to.elements(); ++i) to.set(i, from.get(begin + i));
  };
}

BackwardInputs inputs_of(const HostBackward& host) {
  return {.read = reader_of(host),
          .dropout_seed = host.forward.dropout_seed,
          .dropout_offset = host.forward.dropout_offset};
}

HostBackward host_of(const Problem& problem, const Gradients& gradients, uint64_t seed) {
  Result<HostBackward> host = make_host_backward(make_host_problem(problem, seed), gradients, seed);
  EXPECT_TRUE(host.ok()) << host.status().message();
  return std::move(*host);
}

// Runs a CPU kernel on the host's tensors.
void run(HostBackward& host, const char* kernel) {
  PlanOptions options;
  options.kernel = kernel;
  const Result<Plan> plan = make_backward_plan(host.forward.problem, host.gradients, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(plan->run(host.arguments()).ok());
}

SampledGradients sampled_of(const HostBackward& host) {
  EXPECT_EQ(SampledGradients::refusal(host.forward.problem, host.gradients), "");
  Result<SampledGradients> sampled =
      SampledGradients::compute(host.forward.problem, host.gradients, inputs_of(host));
  EXPECT_TRUE(sampled.ok()) << sampled.status().message();
  return std::move(*sampled);
}

// Problems with every feature that the row gate supports.
std::vector<Problem> featured(DType dtype) {
  std::vector<Problem> all;
  const auto add = [&]() -> Problem& {
    return all.emplace_back(problem_of(dtype, 2, 4, 2, 37, 50, 24));
  };
  (void)add();
  add().causal = true;
  Problem& window = add();
  window.window_left = 7, window.window_right = 2, window.alignment = Alignment::top_left;
  add().softcap = 3;
  add().bias = TensorDesc::contiguous(DType::f16, {2, 4, 37, 50});
  add().mask = TensorDesc::contiguous(DType::boolean, {1, 4, 1, 50});
  add().alibi_slopes = TensorDesc::contiguous(DType::f32, {2, 4});
  add().sinks = TensorDesc::contiguous(DType::f32, {4});
  Problem& lengths = add();
  lengths.seqlens_q = lengths.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  return all;
}

Problem packed(DType dtype) {
  Problem problem;
  problem.q = problem.o = TensorDesc::contiguous(dtype, {90, 4, 24});
  problem.k = problem.v = TensorDesc::contiguous(dtype, {110, 2, 24});
  problem.lse = TensorDesc::contiguous(DType::f32, {90, 4});
  problem.cu_seqlens_q = problem.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {4});
  problem.causal = true;
  return problem;
}

// Judges the whole reference's gradients.
Verdict verdict_of_reference(const HostBackward& host, const GradientReferences& whole) {
  return sampled_of(host).judge([&](std::string_view name, int64_t begin, HostTensor& to) {
    const std::vector<double>& values = whole.find(name)->second.values;
    for (int64_t i = 0; i < to.elements(); ++i) {
      to.set(i, values[static_cast<size_t>(begin + i)]);
    }
  });
}

void expect_same_as_whole(const Problem& problem, bool d_lse) {
  HostBackward host = host_of(problem, exact(plain(problem, d_lse)), 5);
  const Result<GradientReferences> whole = compute_reference(host);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const Verdict verdict = verdict_of_reference(host, *whole);
  EXPECT_TRUE(verdict.passed) << verdict.failure;
  EXPECT_LT(verdict.relative_error, 1e-12);
  double naive = 0;
  for (const auto& [name, one] : *whole) naive = std::max(naive, one.naive_max_error);
  EXPECT_NEAR(verdict.naive_max_error, naive, 1e-6 * naive);
}

TEST(SampledGradients, HasTheValuesOfTheWholeReference) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Problem& problem : featured(dtype)) {
      for (const bool d_lse : {false, true}) expect_same_as_whole(problem, d_lse);
    }
    expect_same_as_whole(packed(dtype), true);
    Problem dropout = problem_of(dtype, 1, 2, 1, 37, 50, 24);
    dropout.dropout_p = 0.3f;
    expect_same_as_whole(dropout, false);
  }
}

// With dropout only the first head is judged, whose mask equals the whole problem's.
TEST(SampledGradients, WithDropoutTheFirstHeadIsJudged) {
  Problem problem = problem_of(DType::f16, 2, 4, 2, 40, 40, 16);
  problem.dropout_p = 0.3f;
  HostBackward host = host_of(problem, plain(problem), 7);
  const SampledGradients sampled = sampled_of(host);
  EXPECT_EQ(sampled.judged(), "80 of 320 rows of dQ, 40 of 160 of dK and dV");
  run(host, "cpu_simd");
  EXPECT_EQ(sampled.judge(reader_of(host)).failure, "");
  host.forward.dropout_seed += 1;
  run(host, "cpu_simd");
  EXPECT_FALSE(sampled.judge(reader_of(host)).passed);
}

// LSE and O in fp32 stay far within the limits of 16-bit inputs.
TEST(SampledGradients, StatisticsInFp32AreCloseEnough) {
  for (const bool causal : {false, true}) {
    Problem problem = problem_of(DType::bf16, 1, 2, 1, 320, 320, 64);
    problem.causal = causal;
    HostBackward host = host_of(problem, plain(problem), 11);
    const auto rows_of = [&](GradientRows::Statistics statistics) {
      HostProblem forward = allocate(problem);
      for (const char* const name : {"q", "k", "v"}) {
        reader_of(host)(name, 0, forward.at(name));
      }
      Result<GradientRows> rows =
          GradientRows::make(std::move(forward), host.at("d_o"), nullptr, statistics, 2);
      EXPECT_TRUE(rows.ok()) << rows.status().message();
      return std::move(*rows);
    };
    const GradientRows fp64 = rows_of(GradientRows::Statistics::fp64);
    const GradientRows fp32 = rows_of(GradientRows::Statistics::fp32);
    EXPECT_TRUE(fp32.dq(1, 304, 16).ok());
    const auto right = fp64.dk_dv(100, 16), close = fp32.dk_dv(100, 16);
    for (const auto& [a, b] : {std::pair{right.first, close.first}, {right.second, close.second}}) {
      double square = 0;
      for (size_t i = 0; i < a.values.size(); ++i) {
        square += (a.values[i] - b.values[i]) * (a.values[i] - b.values[i]);
      }
      EXPECT_LT(std::sqrt(square), 2e-6 * a.norm);
      EXPECT_GT(square, 0);  // checks the test itself
    }
  }
}

struct Injected : ::testing::TestWithParam<DType> {
  Problem problem = [] {
    Problem out = problem_of(GetParam(), 2, 4, 2, 200, 200, 32);
    out.causal = true;
    return out;
  }();
  HostBackward host = host_of(problem, plain(problem), 13);
  SampledGradients sampled = sampled_of(host);

  void SetUp() override { run(host, "cpu_simd"); }

  std::string failure() const { return sampled.judge(reader_of(host)).failure; }

  // The failure after multiplying `width` elements from `first` on by `factor`.
  std::string failure_of(const std::string& name, int64_t first, int64_t width, double factor) {
    HostTensor& tensor = host.at(name);
    const HostTensor before = tensor;
    for (int64_t i = first; i < first + width; ++i) tensor.set(i, factor * tensor.get(i));
    std::string out = failure();
    tensor = before;
    return out;
  }
};

TEST_P(Injected, NothingWrongPasses) {
  const Verdict verdict = sampled.judge(reader_of(host));
  EXPECT_TRUE(verdict.passed) << verdict.failure;
  EXPECT_GT(verdict.relative_error, 0);
  EXPECT_GT(verdict.naive_max_error, 0);
}

TEST_P(Injected, AScaleAndASignAreNoticed) {
  for (const char* const name : {"dq", "dk", "dv"}) {
    const int64_t all = host.at(name).elements();
    for (const double factor : {1.04, 0.96, -1.0, 0.0}) {
      EXPECT_THAT(failure_of(name, 0, all, factor), HasSubstr(std::string(name) + ": ")) << factor;
    }
  }
}

TEST_P(Injected, OneWrongRowIsNoticed) {
  for (const char* const name : {"dq", "dk", "dv"}) {
    const int64_t rows = host.at(name).elements() / 32;
    for (const int64_t row : {int64_t{5}, rows / 2 + 7, rows - 1}) {
      EXPECT_THAT(failure_of(name, row * 32, 32, -1), HasSubstr(std::string(name) + ": ")) << row;
      EXPECT_NE(failure_of(name, row * 32, 32, std::nan("")), "") << row;
    }
  }
  EXPECT_EQ(failure(), "");  // checks the test itself
}

TEST_P(Injected, RowsAloneAreJudgedAlike) {
  std::vector<std::byte> rows;
  for (const char* const name : {"dq", "dk", "dv"}) {
    const TensorDesc& desc = host.at(name).desc();
    const bool of_q = std::string_view(name) == "dq";
    for (const RowBlock& block : of_q ? sampled.blocks_q() : sampled.blocks_kv()) {
      const int64_t row = (block.batch * desc.shape[1] + block.head) * desc.shape[2] + block.first;
      HostTensor part(TensorDesc::contiguous(desc.dtype, {block.count, 32}));
      reader_of(host)(name, row * 32, part);
      const auto* const first = static_cast<const std::byte*>(part.data());
      rows.insert(rows.end(), first, first + static_cast<size_t>(element_bytes(part.desc())));
    }
  }
  const Result<Verdict> verdict = sampled.judge_rows(rows);
  ASSERT_TRUE(verdict.ok()) << verdict.status().message();
  EXPECT_EQ(verdict->failure, "");
  EXPECT_EQ(verdict->relative_error, sampled.judge(reader_of(host)).relative_error);
  rows.pop_back();
  EXPECT_THAT(sampled.judge_rows(rows).status().message(), StartsWith("has "));
}

INSTANTIATE_TEST_SUITE_P(Types, Injected, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& one) { return std::string(to_string(one.param)); });

// The kernels' inputs for the judged heads are the reference's O and LSE.
TEST(SampledGradients, WritesTheForwardPassOfItsHeads) {
  for (const bool is_packed : {false, true}) {
    const Problem problem =
        is_packed ? packed(DType::f16) : problem_of(DType::f16, 2, 4, 2, 40, 50, 16);
    HostBackward host = host_of(problem, plain(problem), 17);
    const HostTensor o = host.forward.at("o"), lse = host.forward.at("lse");
    poison_outputs(host.forward);
    sampled_of(host).write_forward(
        [&](std::string_view name, int64_t begin, const HostTensor& part) {
          for (int64_t i = 0; i < part.elements(); ++i) {
            host.forward.at(name).set(begin + i, part.get(i));
          }
        });
    for (int64_t i = 0; i < o.elements(); ++i) {
      ASSERT_NEAR(host.forward.at("o").get(i), o.get(i), 1e-3) << i;
    }
    for (int64_t i = 0; i < lse.elements(); ++i) {
      ASSERT_NEAR(host.forward.at("lse").get(i), lse.get(i), 1e-6) << i;
    }
  }
}

// A long problem has few judged rows, including the first and the last.
TEST(SampledGradients, SpreadsItsRows) {
  if (kSanitized) GTEST_SKIP() << kTooLong;
  const Problem problem = problem_of(DType::bf16, 3, 8, 4, 2048, 512, 16);
  HostBackward host = add_gradients(make_host_problem(problem, 1), plain(problem), 1);
  const SampledGradients sampled = sampled_of(host);
  const std::vector<RowBlock> q = sampled.blocks_q(), kv = sampled.blocks_kv();
  EXPECT_EQ(q.front().batch + q.front().head + q.front().first, 0);
  EXPECT_EQ(kv.front().batch + kv.front().head + kv.front().first, 0);
  EXPECT_EQ(q.back().batch, 2);
  EXPECT_EQ(q.back().head, 7);
  EXPECT_EQ(q.back().first + q.back().count, 2048);
  EXPECT_EQ(kv.back().head, 3);
  EXPECT_EQ(kv.back().first + kv.back().count, 512);
  EXPECT_LT(std::ssize(q) * 16, 3 * 8 * 2048);
}

TEST(SampledGradients, RefusesSumsOverAllRows) {
  Problem problem = problem_of(DType::f16, 1, 2, 2, 40, 50, 16);
  problem.bias = TensorDesc::contiguous(DType::f16, {1, 1, 40, 50});
  EXPECT_EQ(SampledGradients::refusal(problem, plain(problem)), "");
  EXPECT_THAT(SampledGradients::refusal(problem, gradients_of(problem, false)),
              StartsWith("gate: d_bias is a sum over more rows than are judged"));
  Problem together = packed(DType::f16);
  together.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 90, 110});
  EXPECT_THAT(SampledGradients::refusal(together, plain(together)),
              StartsWith("gate: rows of a packed batch"));
  const Problem large = problem_of(DType::f32, 1, 1, 1, 65536, 65536, 64);
  EXPECT_THAT(SampledGradients::refusal(large, plain(large)), HasSubstr("wanted at most 4e+11"));
}

}  // namespace
}  // namespace flashcore::bench

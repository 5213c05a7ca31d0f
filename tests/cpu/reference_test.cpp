// Compares the reference with the oracle, over the whole of docs/semantics.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/dtype.hpp"
#include "tests/cpu/oracle.hpp"
#include "tests/cpu/relayout.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using bench::HostTensor;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// fp64 against long double: exp of scores of several hundred loses about 1e-13.
constexpr double kTolerance = 2e-11;

TensorDesc with_type(TensorDesc desc, DType dtype) {
  desc.dtype = dtype;
  return desc;
}

// Runs the reference on `host` with separate O and LSE, described by `problem`; the largest values
// are the host's.
Status run_reference(HostProblem& host, const Problem& problem, HostTensor& o, HostTensor* lse,
                     int threads = 1) {
  PlanOptions options;
  options.kernel = "reference";
  options.threads = threads;
  const Result<Plan> plan = make_plan(problem, options);
  if (!plan.ok()) return plan.status();
  Arguments args = host.arguments();
  args.o = o.data();
  args.lse = lse == nullptr ? nullptr : lse->data();
  return plan->run(args);
}

void expect_near(const HostTensor& got, const std::vector<long double>& want, const char* name) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double value = got.get(static_cast<int64_t>(i));
    const auto wanted = static_cast<double>(want[i]);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(value)) << name << ' ' << i << ": " << value;
    } else if (std::isinf(wanted)) {
      ASSERT_EQ(value, wanted) << name << ' ' << i;
    } else {
      ASSERT_LE(std::abs(value - wanted), kTolerance * std::max(1.0, std::abs(wanted)))
          << name << ' ' << i << ": " << value << ", wanted " << wanted;
    }
  }
}

// Compares fp32 numbers with the oracle's long doubles.
void expect_largest(HostProblem& host, const char* name, const std::vector<long double>& want) {
  if (!host.has(name)) return;
  ASSERT_EQ(static_cast<size_t>(host.at(name).elements()), want.size()) << name;
  for (size_t i = 0; i < want.size(); ++i) {
    const double value = host.at(name).get(static_cast<int64_t>(i));
    const auto wanted = static_cast<double>(want[i]);
    const bool same = std::isfinite(wanted)
                          ? std::abs(value - wanted) <= 1e-7 * std::abs(wanted)
                          : value == wanted || (value != value && wanted != wanted);
    const bool may_be_negative = std::string_view(name) == "max_logit";
    ASSERT_TRUE(same && (may_be_negative || !std::signbit(value)))
        << name << ' ' << i << ": " << value << ", wanted " << wanted;
  }
  host.at(name).poison();
}

// Expects equal numbers, or two NaN.
void expect_rounded(const HostTensor& got, const HostTensor& exact, const char* name,
                    const std::vector<long double>& scale = {}) {
  for (int64_t i = 0; i < exact.elements(); ++i) {
    alignas(8) unsigned char bytes[8] = {};
    const double divisor = scale.empty() ? 1.0 : static_cast<double>(scale[static_cast<size_t>(i)]);
    store_element(got.desc().dtype, bytes, 0, exact.get(i) / divisor);
    const double want = load_element(got.desc().dtype, bytes, 0);
    const double value = got.get(i);
    ASSERT_TRUE(value == want || (std::isnan(value) && std::isnan(want)))
        << name << ' ' << i << ": " << value << ", wanted " << want;
  }
}

// O and LSE in fp64 match the oracle; in their own types they are the same, rounded; no other
// memory changes; and threads make no difference.
void check(HostProblem& host) {
  SCOPED_TRACE(bench::describe(host.problem));
  const OracleResult want = oracle(host);
  Problem exact = host.problem;
  exact.o = with_type(exact.o, DType::f64);
  exact.o_scale.reset();
  if (exact.lse) exact.lse = with_type(*exact.lse, DType::f64);
  HostTensor o(exact.o), o_threads(exact.o);
  std::optional<HostTensor> lse;
  if (exact.lse) lse.emplace(*exact.lse);
  HostTensor* const lse_or_null = lse ? &*lse : nullptr;
  Status status = run_reference(host, exact, o, lse_or_null);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_NO_FATAL_FAILURE(expect_near(o, want.o, "o"));
  ASSERT_TRUE(o.canaries_intact());
  if (lse) {
    ASSERT_NO_FATAL_FAILURE(expect_near(*lse, want.lse, "lse"));
    ASSERT_TRUE(lse->canaries_intact());
  }
  const auto expect_all_largest = [&] {
    ASSERT_NO_FATAL_FAILURE(expect_largest(host, "amax_o", want.amax_o));
    ASSERT_NO_FATAL_FAILURE(expect_largest(host, "amax_s", want.amax_s));
    ASSERT_NO_FATAL_FAILURE(expect_largest(host, "max_logit", want.max_logit));
  };
  ASSERT_NO_FATAL_FAILURE(expect_all_largest());
  status = run_reference(host, exact, o_threads, lse_or_null, 3);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(o_threads.same_elements(o));
  ASSERT_NO_FATAL_FAILURE(expect_all_largest());

  const bool has_lse = host.has("lse");
  status = run_reference(host, host.problem, host.at("o"), has_lse ? &host.at("lse") : nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_NO_FATAL_FAILURE(expect_rounded(host.at("o"), o, "o", want.o_scale));
  ASSERT_NO_FATAL_FAILURE(expect_all_largest());
  if (has_lse) {
    ASSERT_NO_FATAL_FAILURE(expect_rounded(host.at("lse"), *lse, "lse"));
  }
  for (const auto& [name, tensor] : host.tensors) ASSERT_TRUE(tensor.canaries_intact()) << name;
}

struct Shape {
  int64_t batch = 2, heads_q = 4, heads_kv = 2, seqlen_q = 7, seqlen_kv = 9;
  int64_t head_dim_qk = 8, head_dim_v = 5;
  DType dtype = DType::f32;
};

Problem problem_of(const Shape& s) {
  Problem problem;
  problem.q = TensorDesc::contiguous(s.dtype, {s.batch, s.heads_q, s.seqlen_q, s.head_dim_qk});
  problem.k = TensorDesc::contiguous(s.dtype, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim_qk});
  problem.v = TensorDesc::contiguous(s.dtype, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim_v});
  problem.o = TensorDesc::contiguous(s.dtype, {s.batch, s.heads_q, s.seqlen_q, s.head_dim_v});
  problem.lse = TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  return problem;
}

void check_problem(const Problem& problem, uint64_t seed = 1,
                   const std::function<void(HostProblem&)>& bend = {}) {
  HostProblem host = bench::make_host_problem(problem, seed);
  if (bend) bend(host);
  check(host);
}

void fill(HostTensor& tensor, const std::vector<double>& values) {
  ASSERT_EQ(static_cast<size_t>(tensor.elements()), values.size());
  for (size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), values[i]);
}

// ---- step 1: types, scales, heads ----

TEST(Reference, EveryTypeOfInputAndOutput) {
  for (const DType in : {DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
    for (const DType out :
         {DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2, DType::f64}) {
      Problem problem = problem_of({.dtype = in});
      problem.o = with_type(problem.o, out);
      check_problem(problem);
    }
  }
}

TEST(Reference, EveryRatioOfHeads) {
  for (const auto& [heads_q, heads_kv] :
       {std::pair<int64_t, int64_t>{1, 1}, {6, 6}, {6, 3}, {6, 2}, {6, 1}, {8, 2}}) {
    check_problem(problem_of({.heads_q = heads_q, .heads_kv = heads_kv}));
  }
}

TEST(Reference, EveryKindOfHeadDim) {
  for (const auto& [qk, v] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 7}, {192, 128}, {128, 192}, {576, 512}, {65, 3}}) {
    check_problem(
        problem_of({.batch = 1, .heads_q = 2, .heads_kv = 1, .head_dim_qk = qk, .head_dim_v = v}));
  }
}

TEST(Reference, SoftmaxScale) {
  for (const float scale : {0.0f, 0.3f, -0.7f, 5.0f}) {
    Problem problem = problem_of({});
    problem.softmax_scale = scale;
    check_problem(problem);
  }
}

TEST(Reference, Fp8ScalesWithEveryBroadcast) {
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
    for (const int64_t block : {0, 1, 2, 4, 9, 100}) {
      const int64_t blocks = block == 0 ? 1 : (9 + block - 1) / block;
      for (int bits = 0; bits < 8; ++bits) {
        const auto extent = [&](int bit, int64_t whole) {
          return (bits >> bit & 1) != 0 ? 1 : whole;
        };
        Problem problem = problem_of({.dtype = dtype});
        problem.o = with_type(problem.o, DType::f32);
        problem.kv_scale_block = block;
        problem.q_scale = TensorDesc::contiguous(DType::f32, {extent(0, 2), extent(1, 4)});
        problem.k_scale = problem.v_scale =
            TensorDesc::contiguous(DType::f32, {extent(0, 2), extent(1, 2), extent(2, blocks)});
        check_problem(problem, static_cast<uint64_t>(bits));
      }
    }
  }
}

// Each tensor has its own type, also under a wider Q.
TEST(Reference, MixesOfFp8) {
  uint64_t seed = 0;
  for (const DType q : {DType::f8e4m3, DType::f8e5m2, DType::bf16}) {
    for (const DType k : {DType::f8e4m3, DType::f8e5m2}) {
      for (const DType v : {DType::f8e4m3, DType::f8e5m2}) {
        Problem problem = problem_of({.dtype = q});
        problem.k.dtype = k;
        problem.v.dtype = v;
        problem.o.dtype = DType::f32;
        problem.v_scale = TensorDesc::contiguous(DType::f32, {2, 2, 1});
        check_problem(problem, ++seed);
      }
    }
  }
}

TEST(Reference, EachFp8ScaleAlone) {
  for (std::optional<TensorDesc> Problem::*scale : {&Problem::k_scale, &Problem::v_scale}) {
    Problem problem = problem_of({.dtype = DType::f8e4m3});
    problem.kv_scale_block = 3;
    problem.*scale = TensorDesc::contiguous(DType::f32, {2, 2, 3});
    check_problem(problem);
  }
  Problem problem = problem_of({.dtype = DType::f8e4m3});
  problem.q_scale = TensorDesc::contiguous(DType::f32, {2, 4});
  check_problem(problem);
}

// ---- steps 2 and 3: softcap, bias, ALiBi ----

TEST(Reference, Softcap) {
  for (const float softcap : {0.01f, 1.0f, 30.0f, 1e20f}) {
    Problem problem = problem_of({});
    problem.softcap = softcap;
    problem.softmax_scale = 3.0f;
    check_problem(problem);
  }
}

TEST(Reference, BiasAndMaskWithEveryBroadcast) {
  for (int bits = 0; bits < 16; ++bits) {
    const auto extent = [&](int bit, int64_t whole) { return (bits >> bit & 1) != 0 ? 1 : whole; };
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Problem problem = problem_of({});
      problem.bias =
          TensorDesc::contiguous(dtype, {extent(0, 2), extent(1, 4), extent(2, 7), extent(3, 9)});
      check_problem(problem, static_cast<uint64_t>(bits));
    }
    Problem problem = problem_of({});
    problem.mask = TensorDesc::contiguous(DType::boolean,
                                          {extent(0, 2), extent(1, 4), extent(2, 7), extent(3, 9)});
    for (uint64_t seed = 0; seed < 3; ++seed) check_problem(problem, seed);
    // Both, broadcast the other way round.
    problem.bias = TensorDesc::contiguous(DType::f32,
                                          {extent(3, 2), extent(2, 4), extent(1, 7), extent(0, 9)});
    check_problem(problem);
  }
}

TEST(Reference, AlibiMeasuresFromTheAlignedDiagonal) {
  for (const Alignment alignment :
       {Alignment::top_left, Alignment::bottom_right, Alignment::given}) {
    for (const bool causal : {false, true}) {
      Problem problem = problem_of({});
      problem.alignment = alignment;
      problem.causal_offset = alignment == Alignment::given ? -3 : 0;
      problem.causal = causal;
      problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {4});
      check_problem(problem);
      problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {1, 4});
      check_problem(problem);
      problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {2, 4});
      check_problem(problem, 1, [](HostProblem& host) {
        fill(host.at("alibi_slopes"), {0.5, -0.25, 0, 2, 1, 0.125, -3, 0.75});
      });
    }
  }
}

// ---- step 4: masks ----

TEST(Reference, CausalWithEveryAlignmentAndShape) {
  for (const auto& [queries, keys] :
       {std::pair<int64_t, int64_t>{7, 7}, {7, 9}, {9, 7}, {1, 9}, {9, 1}, {12, 2}}) {
    for (const Alignment alignment : {Alignment::top_left, Alignment::bottom_right}) {
      Problem problem = problem_of({.seqlen_q = queries, .seqlen_kv = keys});
      problem.causal = true;
      problem.alignment = alignment;
      check_problem(problem);
    }
    for (const int64_t offset : {-13, -3, 0, 2, 13}) {
      Problem problem = problem_of({.seqlen_q = queries, .seqlen_kv = keys});
      problem.causal = true;
      problem.alignment = Alignment::given;
      problem.causal_offset = offset;
      check_problem(problem);
      problem.causal_offset = 0;
      problem.causal_offsets = TensorDesc::contiguous(DType::i32, {2});
      check_problem(problem, 1, [&](HostProblem& host) {
        fill(host.at("causal_offsets"),
             {static_cast<double>(offset), static_cast<double>(-offset)});
      });
    }
  }
}

TEST(Reference, OffsetsAsFarAsTheyGo) {
  for (const int64_t offset : {-(int64_t{1} << 32), int64_t{1} << 32}) {
    Problem problem = problem_of({});
    problem.causal = true;
    problem.alignment = Alignment::given;
    problem.causal_offset = offset;
    check_problem(problem);
    problem.causal = false;
    problem.window_left = problem.window_right = int64_t{1} << 32;
    check_problem(problem);
  }
  Problem problem = problem_of({});
  problem.alignment = Alignment::given;
  problem.causal = true;
  problem.causal_offsets = TensorDesc::contiguous(DType::i32, {2});
  check_problem(problem, 1, [](HostProblem& host) {
    fill(host.at("causal_offsets"), {-2147483648.0, 2147483647.0});
  });
}

TEST(Reference, Windows) {
  for (const int64_t left : {-1, 0, 1, 4, 20}) {
    for (const int64_t right : {-1, 0, 2, 20}) {
      for (const bool causal : {false, true}) {
        for (const Alignment alignment : {Alignment::top_left, Alignment::bottom_right}) {
          Problem problem = problem_of({.batch = 1, .seqlen_q = 9, .seqlen_kv = 6});
          problem.window_left = left;
          problem.window_right = right;
          problem.causal = causal;
          problem.alignment = alignment;
          check_problem(problem);
        }
      }
    }
  }
}

TEST(Reference, SequenceLengths) {
  for (const Alignment alignment : {Alignment::top_left, Alignment::bottom_right}) {
    for (const std::vector<double>& lengths :
         {std::vector<double>{0, 9}, {9, 1}, {5, 3}, {9, 9}, {0, 0}}) {
      Problem problem = problem_of({.seqlen_q = 9});
      problem.causal = true;
      problem.alignment = alignment;
      problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
      check_problem(problem, 1, [&](HostProblem& host) { fill(host.at("seqlens_kv"), lengths); });
      problem.seqlens_q = TensorDesc::contiguous(DType::i32, {2});
      check_problem(problem, 1, [&](HostProblem& host) {
        fill(host.at("seqlens_kv"), lengths);
        fill(host.at("seqlens_q"), {lengths[1], 4});
      });
      problem.seqlens_kv.reset();
      check_problem(problem, 1, [&](HostProblem& host) { fill(host.at("seqlens_q"), lengths); });
    }
  }
}

Problem packed_of(int64_t entries, int64_t total_q, int64_t total_kv) {
  Problem problem;
  problem.q = TensorDesc::contiguous(DType::f32, {total_q, 4, 8});
  problem.k = TensorDesc::contiguous(DType::f32, {total_kv, 2, 8});
  problem.v = TensorDesc::contiguous(DType::f32, {total_kv, 2, 5});
  problem.o = TensorDesc::contiguous(DType::f32, {total_q, 4, 5});
  problem.lse = TensorDesc::contiguous(DType::f32, {total_q, 4});
  problem.cu_seqlens_q = problem.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {entries + 1});
  return problem;
}

TEST(Reference, PackedBatches) {
  const auto bend = [](HostProblem& host) {
    fill(host.at("cu_seqlens_q"), {0, 3, 3, 4, 11});
    fill(host.at("cu_seqlens_kv"), {0, 5, 7, 7, 10});
  };
  for (const Alignment alignment :
       {Alignment::top_left, Alignment::bottom_right, Alignment::given}) {
    Problem problem = packed_of(4, 11, 10);
    problem.alignment = alignment;
    problem.causal = true;
    problem.causal_offset = alignment == Alignment::given ? 1 : 0;
    check_problem(problem, 1, bend);
    problem.sinks = TensorDesc::contiguous(DType::f32, {4});
    check_problem(problem, 1, bend);
    problem.max_seqlen_q = 7;
    problem.max_seqlen_kv = 5;
    problem.bias = TensorDesc::contiguous(DType::f32, {4, 4, 7, 5});
    problem.mask = TensorDesc::contiguous(DType::boolean, {1, 4, 1, 5});
    problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {4, 4});
    problem.dropout_p = 0.3f;
    check_problem(problem, 1, bend);
    problem.seqlens_q = problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {4});
    check_problem(problem, 1, [&](HostProblem& host) {
      bend(host);
      fill(host.at("seqlens_q"), {2, 0, 1, 5});
      fill(host.at("seqlens_kv"), {5, 1, 3, 2});
    });
  }
}

TEST(Reference, PackedScalesAreByTheKeyOfTheEntry) {
  Problem problem = packed_of(3, 11, 10);
  for (TensorDesc* tensor : {&problem.q, &problem.k, &problem.v}) tensor->dtype = DType::f8e4m3;
  problem.max_seqlen_kv = 5;
  problem.kv_scale_block = 2;
  problem.q_scale = TensorDesc::contiguous(DType::f32, {3, 4});
  problem.k_scale = problem.v_scale = TensorDesc::contiguous(DType::f32, {3, 2, 3});
  check_problem(problem, 1, [](HostProblem& host) {
    fill(host.at("cu_seqlens_kv"), {0, 2, 5, 10});
  });
}

// ---- steps 5 and 6: sinks, dropout ----

TEST(Reference, Sinks) {
  Problem problem = problem_of({});
  problem.sinks = TensorDesc::contiguous(DType::f32, {4});
  check_problem(problem);
  problem.causal = true;
  problem.alignment = Alignment::given;
  problem.causal_offset = -3;
  check_problem(problem);
  check_problem(problem, 1, [](HostProblem& host) {
    fill(host.at("sinks"), {-kInf, 100, -100, 0});
  });
  check_problem(problem, 1, [](HostProblem& host) {
    fill(host.at("sinks"), {kNaN, 0, kInf, -kInf});
  });
}

TEST(Reference, Dropout) {
  for (const float p : {0.1f, 0.5f, 0.9f, 1.0f}) {
    Problem problem = problem_of({.seqlen_kv = 33});
    problem.dropout_p = p;
    for (uint64_t seed = 0; seed < 4; ++seed) check_problem(problem, seed);
    problem.sinks = TensorDesc::contiguous(DType::f32, {4});
    problem.causal = true;
    check_problem(problem);
  }
}

// Packing does not change which pairs are dropped, nor anything else.
TEST(Reference, PackedIsBitwiseThePaddedBatch) {
  Problem padded = problem_of({.batch = 3});
  padded.dropout_p = 0.4f;
  padded.causal = true;
  padded.o = with_type(padded.o, DType::f64);
  padded.seqlens_q = padded.seqlens_kv = TensorDesc::contiguous(DType::i32, {3});
  HostProblem a = bench::make_host_problem(padded, 5);
  fill(a.at("seqlens_q"), {7, 2, 5});
  fill(a.at("seqlens_kv"), {4, 9, 6});
  Problem packed = packed_of(3, 14, 19);
  packed.dropout_p = 0.4f;
  packed.causal = true;
  packed.o = with_type(packed.o, DType::f64);
  HostProblem b = bench::make_host_problem(packed, 5);
  const std::vector<double> cu_q = {0, 7, 9, 14}, cu_kv = {0, 4, 13, 19};
  fill(b.at("cu_seqlens_q"), cu_q);
  fill(b.at("cu_seqlens_kv"), cu_kv);
  const auto for_each_row = [&](const char* name, const std::vector<double>& cu, int64_t longest,
                                int64_t heads, int64_t width, const auto& visit) {
    for (int64_t n = 0; n < 3; ++n) {
      const auto first = static_cast<int64_t>(cu[static_cast<size_t>(n)]);
      const auto last = static_cast<int64_t>(cu[static_cast<size_t>(n) + 1]);
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < last - first; ++i) {
          for (int64_t d = 0; d < width; ++d) {
            visit(name, ((n * heads + h) * longest + i) * width + d,
                  ((first + i) * heads + h) * width + d);
          }
        }
      }
    }
  };
  const auto copy = [&](const char* name, int64_t from, int64_t to) {
    b.at(name).set(to, a.at(name).get(from));
  };
  for_each_row("q", cu_q, 7, 4, 8, copy);
  for_each_row("k", cu_kv, 9, 2, 8, copy);
  for_each_row("v", cu_kv, 9, 2, 5, copy);
  ASSERT_TRUE(run_reference(a, a.problem, a.at("o"), &a.at("lse")).ok());
  ASSERT_TRUE(run_reference(b, b.problem, b.at("o"), &b.at("lse")).ok());
  const auto same = [&](const char* name, int64_t in_a, int64_t in_b) {
    EXPECT_EQ(a.at(name).get(in_a), b.at(name).get(in_b)) << name;
  };
  for_each_row("o", cu_q, 7, 4, 5, same);
  for_each_row("lse", cu_q, 7, 4, 1, same);
}

// ---- edges ----

TEST(Edges, RowsWithEveryKeyRemoved) {
  struct Way {
    const char* name;
    std::function<void(Problem&)> ask;
    std::function<void(HostProblem&)> bend;
  };
  const std::vector<Way> ways = {
      {"causal",
       [](Problem& p) {
         p.causal = true;
         p.alignment = Alignment::given;
         p.causal_offset = -100;
       },
       {}},
      {"window",
       [](Problem& p) {
         p.window_left = 2;
         p.alignment = Alignment::given;
         p.causal_offset = 100;
       },
       {}},
      {"mask",
       [](Problem& p) {
         p.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 1, 1});
       },
       [](HostProblem& host) { host.at("mask").set(0, 0); }},
      {"bias",
       [](Problem& p) {
         p.bias = TensorDesc::contiguous(DType::f16, {1, 1, 1, 9});
       },
       [](HostProblem& host) { host.at("bias").fill([] { return -kInf; }); }},
      {"seqlens_kv", [](Problem& p) { p.seqlens_kv = TensorDesc::contiguous(DType::i32, {2}); },
       [](HostProblem& host) { host.at("seqlens_kv").fill([] { return 0.0; }); }},
      {"seqlens_q", [](Problem& p) { p.seqlens_q = TensorDesc::contiguous(DType::i32, {2}); },
       [](HostProblem& host) { host.at("seqlens_q").fill([] { return 0.0; }); }},
      {"no keys", [](Problem& p) { p.k.shape[2] = p.v.shape[2] = 0; }, {}},
  };
  for (const Way& way : ways) {
    for (const bool sinks : {false, true}) {
      for (const bool dirty : {false, true}) {  // hidden elements may hold anything
        SCOPED_TRACE(fmt::format("{} sinks {} dirty {}", way.name, sinks, dirty));
        Problem problem = problem_of({});
        way.ask(problem);
        if (sinks) problem.sinks = TensorDesc::contiguous(DType::f32, {4});
        HostProblem host = bench::make_host_problem(problem, 2);
        if (way.bend) way.bend(host);
        if (dirty) {
          for (const char* const name : {"q", "k", "v"}) host.at(name).fill([] { return kNaN; });
        }
        check(host);
        for (int64_t i = 0; i < host.at("o").elements(); ++i) ASSERT_EQ(host.at("o").get(i), 0.0);
        for (int64_t i = 0; i < host.at("lse").elements(); ++i) {
          ASSERT_EQ(host.at("lse").get(i), sinks ? host.at("sinks").get(i / 7 % 4) : -kInf);
        }
      }
    }
  }
}

// Returns which rows of O of 2 entries, 4 heads and 7 queries hold a NaN; every other element must be finite.
std::vector<bool> rows_with_nan(const HostProblem& host) {
  const HostTensor& o = host.at("o");
  const int64_t width = o.desc().shape[3];
  std::vector<bool> rows(static_cast<size_t>(o.elements() / width));
  for (int64_t i = 0; i < o.elements(); ++i) {
    if (std::isnan(o.get(i))) rows[static_cast<size_t>(i / width)] = true;
  }
  return rows;
}

TEST(Edges, NaNReachesExactlyTheRowsThatAttendToIt) {
  Problem problem = problem_of({});
  problem.causal = true;  // bottom right: query i sees keys up to i + 2
  for (const char* const name : {"q", "k", "v"}) {
    for (const int64_t row : {0, 3, 6}) {
      HostProblem host = bench::make_host_problem(problem, 3);
      // Entry 1, head 1 of q, KV head 1 of k and v.
      const TensorDesc& desc = host.at(name).desc();
      const int64_t width = desc.shape[3];
      const int64_t first = ((1 * desc.shape[1] + 1) * desc.shape[2] + row) * width;
      for (int64_t d = 0; d < width; ++d) host.at(name).set(first + d, kNaN);
      check(host);
      const std::vector<bool> rows = rows_with_nan(host);
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t i = 0; i < 7; ++i) {
            const bool attends =
                *name == 'q' ? b == 1 && h == 1 && i == row : b == 1 && h / 2 == 1 && row <= i + 2;
            EXPECT_EQ(rows[static_cast<size_t>((b * 4 + h) * 7 + i)], attends)
                << name << ' ' << row << ": " << b << ' ' << h << ' ' << i;
          }
        }
      }
    }
  }
}

// Key 4 is hidden from all queries: no bit depends on it or its value.
TEST(Edges, WhatNoQuerySeesDoesNotReachTheOutput) {
  struct Way {
    const char* name;
    std::function<void(Problem&)> ask;
    std::function<void(HostProblem&)> hide;
  };
  const std::vector<Way> ways = {
      {"mask",
       [](Problem& p) {
         p.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 1, 9});
       },
       [](HostProblem& host) {
         for (int64_t j = 0; j < 9; ++j) host.at("mask").set(j, j == 4 ? 0 : 1);
       }},
      {"bias",
       [](Problem& p) {
         p.bias = TensorDesc::contiguous(DType::f32, {1, 1, 1, 9});
       },
       [](HostProblem& host) { host.at("bias").set(4, -kInf); }},
      {"length", [](Problem& p) { p.seqlens_kv = TensorDesc::contiguous(DType::i32, {2}); },
       [](HostProblem& host) { host.at("seqlens_kv").fill([] { return 4.0; }); }},
      {"causal",
       [](Problem& p) {
         p.causal = true;
         p.alignment = Alignment::given;
         p.causal_offset = -3;  // the last query, 6, sees key 3
       },
       [](HostProblem&) {}},
  };
  for (const Way& way : ways) {
    for (const double poison : {kNaN, kInf, -kInf}) {
      SCOPED_TRACE(fmt::format("{} {}", way.name, poison));
      Problem problem = problem_of({});
      way.ask(problem);
      HostProblem clean = bench::make_host_problem(problem, 4);
      way.hide(clean);
      HostProblem dirty = bench::make_host_problem(problem, 4);
      way.hide(dirty);
      for (const char* const name : {"k", "v"}) {
        HostTensor& tensor = dirty.at(name);
        const int64_t width = tensor.desc().shape[3];
        for (int64_t head = 0; head < 4; ++head) {
          for (int64_t d = 0; d < width; ++d) tensor.set((head * 9 + 4) * width + d, poison);
        }
      }
      check(clean);
      check(dirty);
      EXPECT_TRUE(dirty.at("o").same_elements(clean.at("o")));
      EXPECT_TRUE(dirty.at("lse").same_elements(clean.at("lse")));
    }
  }
}

TEST(Edges, QueriesOutOfUseDoNotReachTheOutput) {
  Problem problem = problem_of({});
  problem.seqlens_q = TensorDesc::contiguous(DType::i32, {2});
  HostProblem host = bench::make_host_problem(problem, 4);
  fill(host.at("seqlens_q"), {3, 7});
  for (int64_t i = 3 * 8; i < 7 * 8; ++i) host.at("q").set(i, kNaN);  // entry 0, head 0
  check(host);
  for (const bool nan : rows_with_nan(host)) EXPECT_FALSE(nan);
}

TEST(Edges, BiasOfMinusInfinityRemovesEvenNaNScores) {
  Problem problem = problem_of({});
  problem.bias = TensorDesc::contiguous(DType::f32, {1, 1, 7, 9});
  HostProblem host = bench::make_host_problem(problem, 4);
  for (int64_t i = 0; i < 7; ++i) host.at("bias").set(i * 9 + 2, -kInf);
  for (int64_t head = 0; head < 4; ++head) host.at("k").set((head * 9 + 2) * 8, kNaN);
  check(host);
  for (const bool nan : rows_with_nan(host)) EXPECT_FALSE(nan);
}

TEST(Edges, InfinitiesThatAreAttended) {
  for (const char* const name : {"q", "k", "v"}) {
    for (const double value : {kInf, -kInf}) {
      check_problem(problem_of({}), 1, [&](HostProblem& host) {
        host.at(name).set(3, value);
        host.at(name).set(60, value);
      });
    }
  }
  Problem problem = problem_of({});
  problem.bias = TensorDesc::contiguous(DType::f32, {1, 1, 7, 9});
  check_problem(problem, 1, [](HostProblem& host) { host.at("bias").set(11, kInf); });
  check_problem(problem, 1, [](HostProblem& host) { host.at("bias").set(11, kNaN); });
}

TEST(Edges, ScoresOfAnySize) {
  for (const float scale : {1e4f, -1e4f, 1e30f}) {
    Problem problem = problem_of({});
    problem.softmax_scale = scale;
    HostProblem host = bench::make_host_problem(problem, 1);
    // Integers, so that fp64 and long double agree on the scores to the last bit.
    for (const char* const name : {"q", "k"}) {
      HostTensor& tensor = host.at(name);
      for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, std::round(tensor.get(i)));
    }
    check(host);
  }
}

TEST(Edges, ZeroSizes) {
  for (int bits = 1; bits < 16; ++bits) {
    const auto extent = [&](int bit, int64_t whole) { return (bits >> bit & 1) != 0 ? 0 : whole; };
    Shape shape;
    shape.batch = extent(0, 2);
    shape.heads_q = extent(1, 4);
    shape.seqlen_q = extent(2, 7);
    shape.seqlen_kv = extent(3, 9);
    Problem problem = problem_of(shape);
    check_problem(problem);
    problem.bias = TensorDesc::contiguous(
        DType::f32, {shape.batch, shape.heads_q, shape.seqlen_q, shape.seqlen_kv});
    problem.sinks = TensorDesc::contiguous(DType::f32, {shape.heads_q});
    problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {shape.batch, shape.heads_q});
    problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {shape.batch});
    problem.causal = true;
    check_problem(problem);
  }
  Problem no_heads = problem_of({.heads_q = 0, .heads_kv = 0});
  check_problem(no_heads);
  for (const int64_t entries : {0, 1, 3}) {
    check_problem(packed_of(entries, 0, 0));
    if (entries > 0) check_problem(packed_of(entries, 5, 0));
    if (entries > 0) check_problem(packed_of(entries, 0, 5));
  }
}

// The largest possible batch takes no time if there is nothing to write.
TEST(Edges, HugeBatchOfNothing) {
  const int64_t huge = (int64_t{1} << 31) - 1;
  Problem problem;
  problem.q = problem.o = TensorDesc::strided(DType::f32, {huge, 4, 0, 8}, {0, 0, 8, 1});
  problem.k = problem.v = TensorDesc::strided(DType::f32, {huge, 2, 9, 8}, {0, 72, 8, 1});
  const std::vector<float> keys(2 * 9 * 8, 1.0f);
  PlanOptions options;
  options.kernel = "reference";
  const Result<Plan> plan = make_plan(problem, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Arguments args;
  args.k = args.v = keys.data();
  EXPECT_TRUE(plan->run(args).ok()) << plan->run(args).message();
}

// ---- layouts and random problems ----

TEST(Layouts, BshdBroadcastAndReversed) {
  const Shape s;
  Problem problem = problem_of(s);
  const auto bshd = [&](int64_t heads, int64_t rows, int64_t width) {
    return TensorDesc::strided(DType::f32, {2, heads, rows, width},
                               {heads * rows * width, width, heads * width, 1});
  };
  problem.q = bshd(4, 7, 8);
  problem.k = bshd(2, 9, 8);
  problem.v = bshd(2, 9, 5);
  problem.o = bshd(4, 7, 5);
  problem.lse = TensorDesc::strided(DType::f32, {2, 4, 7}, {28, 1, 4});
  check_problem(problem);
  problem.k.stride[0] = 0;  // one K for all entries
  problem.v.stride[2] = -10;
  problem.o.stride[1] = -5;
  problem.lse->stride[2] = -4;
  check_problem(problem);
}

TEST(Layouts, RandomProblemsLaidOutAnew) {
  bench::RandomSpace space;
  space.more_outputs = space.max_logit = space.mixes_fp8 = true;
  space.largest_seqlen = 24;
  space.largest_head_dim = 24;
  for (uint64_t seed = 0; seed < problem_count(400); ++seed) {
    SCOPED_TRACE(seed);
    HostProblem host = bench::random_problem(seed, space);
    ASSERT_NO_FATAL_FAILURE(check(host));
    bench::Random random(seed);
    HostProblem other = relayout(host, random);
    ASSERT_NO_FATAL_FAILURE(check(other));
  }
}

}  // namespace
}  // namespace flashcore

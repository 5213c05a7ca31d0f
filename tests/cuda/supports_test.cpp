// A variant of the table computes what its row says (supported_rows.cpp), and refuses everything else in the words of
// all kernels. Other refusals are tested with their kernel.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/device_code.hpp"
#include "kernel/kernel.hpp"
#include "plan/device.hpp"
#include "plan/table.hpp"
#include "tests/cuda/random_passes.hpp"
#include "tests/cuda/supported_rows.hpp"
#include "tests/kernel/asked_features.hpp"

namespace flashcore {
namespace {

using testing::StartsWith;
using tests::Asked, tests::Pass;
using enum Feature;
using Row = tests::SupportedRow;

constexpr DType kDtypes[] = {DType::f16,    DType::bf16,   DType::f32,
                             DType::f8e4m3, DType::f8e5m2, DType::f64};

// ---- questions

DType first_of(Dtypes dtypes) {
  return *std::find_if(std::begin(kDtypes), std::end(kDtypes),
                       [&](DType one) { return dtypes.has(one); });
}

// The type of O where Q is of this one.
DType o_of(const Row& row, DType q) {
  return row.computes.has(o_apart) && !row.o.has(q) ? first_of(row.o) : q;
}

void set_type(BackwardProblem& problem, const Row& row, DType q) {
  ForwardProblem& p = problem.forward;
  p.dtype = p.k_dtype = p.v_dtype = q;
  p.o_dtype = o_of(row, q);
  problem.dq_dtype = problem.dk_dtype = problem.dv_dtype = q == DType::f64 ? DType::f32 : q;
}

// From a row to the next, so that each begins at a multiple of 16 bytes.
int64_t aligned(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// A problem that the variant computes, with rows of these lengths.
BackwardProblem problem_of(const Row& row, int64_t head_dim_qk, int64_t head_dim_v,
                           bool needed = true) {
  BackwardProblem problem = tests::plain();
  set_type(problem, row, first_of(row.q));
  ForwardProblem& p = problem.forward;
  p.head_dim_qk = head_dim_qk, p.head_dim_v = head_dim_v;
  p.q = problem.dq = tests::dense(p.heads_q, p.seqlen_q, aligned(head_dim_qk));
  p.k = problem.dk = tests::dense(p.heads_kv, p.seqlen_kv, aligned(head_dim_qk));
  p.v = problem.dv = tests::dense(p.heads_kv, p.seqlen_kv, aligned(head_dim_v));
  p.o = problem.d_o = tests::dense(p.heads_q, p.seqlen_q, aligned(head_dim_v));
  if (needed && row.need != nullptr) row.need(p);
  return problem;
}
BackwardProblem problem_of(const Row& row) {
  return problem_of(row, row.head_dim_qk, row.head_dim_v);
}

PlanContext context_of(const Variant& variant) {
  if (variant.device == DeviceKind::cuda) return fake::context_of({90, 132, 227 * 1024});
  PlanContext context;
  context.device = cpu_device();
  context.threads = 4;
  return context;
}

std::string refusal(const Row& row, const BackwardProblem& problem, const PlanContext& context) {
  Variant variant = *find_variant(row.variant);
  if (row.asks_another) variant.supports.extra = {};  // in which the kernel within it is asked
  return row.pass == Pass::backward ? refusal_of(variant, problem, context)
                                    : refusal_of(variant, problem.forward, context);
}
std::string refusal(const Row& row, const BackwardProblem& problem) {
  return refusal(row, problem, context_of(*find_variant(row.variant)));
}

Features features(const Row& row, const BackwardProblem& problem) {
  return row.pass == Pass::backward ? features_of(problem) : features_of(problem.forward);
}

bool takes_types(const Row& row, const ForwardProblem& p) {
  return row.q.has(p.dtype) && (!row.computes.has(o_apart) || row.o.has(p.o_dtype));
}

// Asks for a feature, and keeps the type of O where that is not the feature.
void ask(BackwardProblem& problem, const Row& row, const Asked& one) {
  one.ask(problem);
  if (one.feature == k_apart) problem.forward.o_dtype = o_of(row, problem.forward.dtype);
}

void replace(std::string& text, std::string_view from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// The sentence is of a problem of f16.
std::string sentence_of(const Asked& one, DType q) {
  std::string text(one.sentence);
  replace(text, " f16", fmt::format(" {}", to_string(q)));
  replace(text, "multiple of 8 ", fmt::format("multiple of {} ", 16 / size_of(q)));
  return text;
}

void expect_answer(const std::string& refused, bool is_taken, const std::string& sentence) {
  if (is_taken) {
    EXPECT_EQ(refused, "");
  } else {
    EXPECT_THAT(refused, StartsWith(sentence));
  }
}

bool is_in(const HeadDims& dims, int64_t head_dim) {
  return head_dim >= dims.least && head_dim <= dims.most && head_dim % dims.step == 0;
}

class Supported : public testing::TestWithParam<Row> {};

std::string name_of(const testing::TestParamInfo<Row>& tested) {
  std::string name(tested.param.variant);
  std::replace(name.begin(), name.end(), ':', '_');
  return name + (tested.param.pass == Pass::backward ? "_backward" : "");
}
INSTANTIATE_TEST_SUITE_P(Variants, Supported, testing::ValuesIn(tests::supported_rows()), name_of);

// ---- answers

TEST(Supported, EveryPassOfEveryVariantHasARow) {
  std::multiset<std::string> in_table, here;
  for (const Variant& variant : variants()) {
    const BackwardProblem problem = tests::plain();
    const auto add = [&](const auto& p, std::string_view pass, const char* other) {
      if (computes(variant, p)) {
        in_table.insert(fmt::format("{} {}", variant.name, pass));
      } else {
        EXPECT_EQ(refusal_of(variant, p, context_of(variant)),
                  fmt::format("pass: is {}, wanted {}", pass, other));
      }
    };
    add(problem.forward, "forward", "backward");
    add(problem, "backward", "forward");
  }
  for (const Row& row : tests::supported_rows()) {
    here.insert(
        fmt::format("{} {}", row.variant, row.pass == Pass::backward ? "backward" : "forward"));
  }
  EXPECT_EQ(here, in_table);
}

TEST_P(Supported, OtherFeaturesAreRefusedInTheSharedSentence) {
  const Row& row = GetParam();
  for (const Asked& one : tests::asked_features()) {
    if (row.computes.has(one.feature)) continue;
    BackwardProblem problem = problem_of(row);
    ask(problem, row, one);
    // Features of another pass or of types that the kernel does not take.
    if (!features(row, problem).has(one.feature) || !takes_types(row, problem.forward)) continue;
    EXPECT_EQ(refusal(row, problem), sentence_of(one, problem.forward.dtype));
  }
}

TEST_P(Supported, ItsFeaturesAreComputedOneAndTwoAtATime) {
  const Row& row = GetParam();
  const Features own = features(row, problem_of(row));
  EXPECT_TRUE((own - row.computes).empty());
  for (const Asked& first : tests::asked_features()) {
    for (const Asked& second : tests::asked_features()) {
      if (first.feature > second.feature) continue;
      const Features both = Features(first.feature) | second.feature;
      if (!(both - row.computes).empty() || !(both & own).empty()) continue;
      BackwardProblem problem = problem_of(row);
      ask(problem, row, first);
      ask(problem, row, second);
      const Features found = features(row, problem);
      if (!(found - row.computes).empty() || !(both - found).empty()) continue;  // no such pair
      if (both == row.not_together || !takes_types(row, problem.forward)) continue;
      EXPECT_EQ(refusal(row, problem), "") << first.sentence << "; " << second.sentence;
    }
  }
}

TEST_P(Supported, TheGradientsOfItsOptionsAreComputed) {
  const Row& row = GetParam();
  if (row.pass != Pass::backward) return;
  BackwardProblem problem = problem_of(row);
  ForwardProblem& p = problem.forward;
  problem.has_d_lse = true;
  p.sinks.present = problem.d_sinks.present = row.computes.has(sinks);
  p.bias.present = problem.d_bias.present = row.computes.has(bias);
  p.alibi_slopes.present = problem.d_alibi_slopes.present = row.computes.has(alibi_slopes);
  EXPECT_EQ(refusal(row, problem), "");
}

TEST_P(Supported, OnlyWithWhatItIsFor) {
  const Row& row = GetParam();
  if (row.need == nullptr) return;
  EXPECT_EQ(refusal(row, problem_of(row, row.head_dim_qk, row.head_dim_v, false)), row.without);
}

TEST_P(Supported, OnlyItsTypes) {
  const Row& row = GetParam();
  for (const DType q : kDtypes) {
    BackwardProblem problem = problem_of(row);
    set_type(problem, row, q);
    const std::string sentence = fmt::format("q: dtype is {}, wanted ", to_string(q));
    expect_answer(refusal(row, problem), row.q.has(q), sentence);
  }
  for (const DType o : kDtypes) {
    BackwardProblem problem = problem_of(row);
    problem.forward.o_dtype = o;
    const bool taken = row.computes.has(o_apart) ? row.o.has(o) : o == problem.forward.dtype;
    const std::string sentence = fmt::format("o: dtype is {}, wanted ", to_string(o));
    expect_answer(refusal(row, problem), taken, sentence);
  }
}

TEST_P(Supported, OnlyItsHeadDimensions) {
  const Row& row = GetParam();
  std::vector<int64_t> head_dims = {row.qk.most - 1, row.qk.most};
  if (row.qk.most == HeadDims().most) head_dims = {4096, 5000};
  for (int64_t head_dim = 1; head_dim <= 600; ++head_dim) head_dims.push_back(head_dim);
  if (row.qk.most < 5000) head_dims.push_back(row.qk.most + row.qk.step);
  for (const int64_t head_dim : head_dims) {
    SCOPED_TRACE(head_dim);
    const auto expect = [&](const char* name, const HeadDims& taken, int64_t qk, int64_t v) {
      const std::string sentence = fmt::format("{}: head dimension is {}, ", name, head_dim);
      expect_answer(refusal(row, problem_of(row, qk, v)), is_in(taken, head_dim), sentence);
    };
    if (row.computes.has(v_head_dim)) {
      expect("q", row.qk, head_dim, row.head_dim_v);
      expect("v", row.v, row.head_dim_qk, head_dim);
    } else {
      expect("q", row.qk, head_dim, head_dim);
    }
  }
}

TEST_P(Supported, OnlyOnItsGpus) {
  const Row& row = GetParam();
  const Variant& variant = *find_variant(row.variant);
  if (variant.device != DeviceKind::cuda) return;
  for (const fake::Gpu& gpu : tests::kGpus) {
    const int32_t capability = gpu.compute_capability;
    const bool in_range = capability >= row.arch.least && capability <= row.arch.most;
    const bool taken = in_range && built_for(variant.targets, capability);
    const std::string sentence =
        fmt::format("device: compute capability is {}, {}", capability_text(capability),
                    in_range ? "this build has code for " : "wanted ");
    expect_answer(refusal(row, problem_of(row), fake::context_of(gpu)), taken, sentence);
  }
}

TEST_P(Supported, OnlyItsNumbersOfRows) {
  const Row& row = GetParam();
  const Variant& variant = *find_variant(row.variant);
  if (variant.device != DeviceKind::cuda) return;
  for (const bool queries : {true, false}) {
    for (const int64_t count : {tests::kMostRows - 1, tests::kMostRows}) {
      BackwardProblem problem = problem_of(row);
      (queries ? problem.forward.seqlen_q : problem.forward.seqlen_kv) = count;
      const std::string sentence = fmt::format("{}: has {} rows, wanted less than {}",
                                               queries ? "q" : "k", count, tests::kMostRows);
      const std::string refused = refusal(row, problem);
      if (count < row.rows_below) {
        EXPECT_NE(refused, sentence);
      } else {
        EXPECT_EQ(refused, sentence);
      }
    }
  }
}

}  // namespace
}  // namespace flashcore

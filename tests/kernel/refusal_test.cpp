// What is not in a kernel's `supports` is refused, in the same words for every kernel.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"
#include "tests/kernel/asked_features.hpp"

namespace flashcore {
namespace {

using tests::plain;
using enum Feature;

template <class AnyProblem>
std::string refusal(const SupportsOf<AnyProblem>& supports, const AnyProblem& problem,
                    int32_t compute_capability = 90) {
  PlanContext context;
  context.device.compute_capability = compute_capability;
  return refusal_on_gpu(supports, "75+ptx;90a", problem, context);
}

TEST(Refusal, PlainAttentionHasNoFeature) { EXPECT_TRUE(features_of(plain()).empty()); }

TEST(Refusal, EachFeatureIsFoundAndHasItsSentence) {
  Features seen;
  for (const tests::Asked& one : tests::asked_features()) {
    BackwardProblem problem = plain();
    one.ask(problem);
    EXPECT_EQ(features_of(problem), Features(one.feature)) << one.sentence;
    seen = seen | one.feature;
    BackwardSupports supports = everything<BackwardProblem>();
    EXPECT_EQ(refusal(supports, problem), "");
    supports.features = Features::all() - one.feature;
    EXPECT_EQ(refusal(supports, problem), one.sentence);
  }
  EXPECT_EQ(seen, Features::all());
}

TEST(Refusal, TypesHeadDimensionsRowsAndGpusHaveTheirs) {
  const ForwardProblem p = plain().forward;
  Supports supports = everything<ForwardProblem>();
  const auto expect = [&](const Supports& one, std::string_view sentence, int32_t on = 90) {
    EXPECT_EQ(refusal(one, p, on), sentence);
  };
  expect(supports, "");
  Supports other = supports;
  other.q = {DType::bf16, DType::f32};
  expect(other, "q: dtype is f16, wanted bf16 or f32");
  other = supports, other.o = {DType::f8e4m3, DType::f8e5m2, DType::f32};
  expect(other, "o: dtype is f16, wanted f32, f8e4m3 or f8e5m2");
  other = supports, other.head_dims.most = 63;
  expect(other, "q: head dimension is 64, wanted at most 63");
  other.head_dims = {.most = 256, .step = 128, .least = 128};
  expect(other, "q: head dimension is 64, wanted a multiple of 128 up to 256");
  other = supports, other.rows_below = 57;
  expect(other, "k: has 57 rows, wanted less than 57");
  other = supports, other.needs = dropout_state;
  expect(other, "dropout_state: is not given, wanted it");
  other.needs = feature_sets::kPages | cache_leftpad;
  expect(other, "page_table: is not given, wanted one of page_table, kv_indices or cache_leftpad");
  other = supports, other.arch = {.least = 80};
  expect(other, "device: compute capability is 7.5, wanted 8.0 or later", 75);
  other.arch = {90, 90};
  expect(other, "device: compute capability is 10.0, wanted 9.0", 100);
  other = but_not(supports, [](const ForwardProblem&, const PlanContext&) { return "own"; });
  expect(but_not(other, [](const ForwardProblem&, const PlanContext&) { return "more"; }), "own");
}

}  // namespace
}  // namespace flashcore

// The gates fail when they should: for results that are slightly wrong, unwritten, NaN where they
// must not be, or written elsewhere.
#include "bench/gate/gates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "bench/tensors/random.hpp"
#include "problem/dtype.hpp"
#include "problem/problem.hpp"
#include "tests/problem/run_plan.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using bench::HostTensor;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kElement = 5 * 32 + 7;  // O's head 0, query 5, column 7
constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2};

Problem problem_of(DType dtype) {
  Problem problem;
  problem.q = TensorDesc::contiguous(dtype, {1, 4, 48, 32});
  problem.k = problem.v = TensorDesc::contiguous(dtype, {1, 2, 64, 32});
  problem.o = problem.q;
  if (size_of(dtype) == 1) problem.o.dtype = DType::f16;
  problem.lse = TensorDesc::contiguous(DType::f32, {1, 4, 48});
  problem.causal = true;
  return problem;
}

// Right outputs, their reference, and a judge of a test's changes to them.
class Judged {
 public:
  explicit Judged(const Problem& problem, uint64_t seed = 1,
                  const std::function<void(HostProblem&)>& bend = {})
      : host_(bench::make_host_problem(problem, seed)) {
    if (bend) bend(host_);
    reference_ = *bench::compute_reference(host_);
    o().assign(reference_.o);
    if (host_.has("lse")) host_.at("lse").assign(reference_.lse);
    for (size_t i = 0; i < kLargestOutputs.size(); ++i) {
      const char* const name = kLargestOutputs[i].name;
      if (host_.has(name)) host_.at(name).assign(reference_.largest[i]);
    }
  }

  HostProblem& host() { return host_; }
  HostTensor& o() { return host_.at("o"); }
  HostTensor& lse() { return host_.at("lse"); }
  const bench::Reference& reference() const { return reference_; }
  // O as it is stored, divided by its scale.
  void set_scaled() {
    for (size_t i = 0; i < reference_.o.size(); ++i) {
      o().set(static_cast<int64_t>(i), reference_.o[i] / reference_.o_scale[i]);
    }
  }
  bench::Verdict judge() const { return bench::judge(host_, reference_); }

  void expect_failure(const std::string& sentence) const {
    const bench::Verdict verdict = judge();
    EXPECT_FALSE(verdict.passed) << sentence;
    EXPECT_THAT(verdict.failure, HasSubstr(sentence));
  }

 private:
  HostProblem host_;
  bench::Reference reference_;
};

TEST(Gates, PassWhatIsRight) {
  for (const DType dtype : kTypes) {
    const bench::Verdict verdict = Judged(problem_of(dtype)).judge();
    EXPECT_TRUE(verdict.passed) << to_string(dtype) << ": " << verdict.failure;
  }
}

TEST(Gates, LimitsAreThoseOfTheSemantics) {
  const auto expect = [](DType dtype, double scaled, double relative, double lse) {
    const bench::GateLimits limits = bench::gate_limits(dtype);
    EXPECT_EQ(limits.max_scaled_error, scaled);
    EXPECT_EQ(limits.relative_error, relative);
    EXPECT_EQ(limits.lse_error, lse);
    EXPECT_EQ(limits.naive_allowance.has_value(), size_of(dtype) == 2);
    EXPECT_EQ(limits.outlier_error.has_value(), size_of(dtype) == 1);
  };
  expect(DType::f32, 2e-5, 2e-6, 1e-4);
  expect(DType::f16, 1e-3, 1e-3, 1e-3);
  expect(DType::bf16, 8e-3, 6e-3, 1e-3);
  expect(DType::f8e4m3, 6e-2, 3e-2, 1e-2);
  EXPECT_EQ(bench::gate_limits(DType::f16).naive_allowance, 1e-4);
  EXPECT_EQ(bench::gate_limits(DType::bf16).naive_allowance, 1e-3);
  EXPECT_EQ(bench::gate_limits(DType::f8e4m3).outlier_error, 0.05);
  EXPECT_EQ(bench::gate_limits(DType::f8e4m3).outlier_fraction, 0.01);
}

TEST(Gates, FailOneElementThatIsOff) {
  for (const DType dtype : kTypes) {
    for (const int64_t element : {int64_t{0}, int64_t{1000}, int64_t{4 * 48 * 32 - 1}}) {
      Judged judged(problem_of(dtype));
      const double limit = bench::gate_limits(dtype).max_scaled_error;
      const double right = judged.reference().o[static_cast<size_t>(element)];
      judged.o().set(element, right + 1.5 * limit * std::max(1.0, std::abs(right)));
      judged.expect_failure("max scaled error");
    }
  }
}

TEST(Gates, FailASmallErrorEverywhere) {
  for (const DType dtype : kTypes) {
    Problem problem = problem_of(dtype);
    problem.o.dtype = DType::f32;  // finer than the limits of the inputs' type
    Judged judged(problem);
    const double relative = 1.3 * bench::gate_limits(dtype).relative_error;
    for (int64_t i = 0; i < judged.o().elements(); ++i) {
      judged.o().set(i, judged.reference().o[static_cast<size_t>(i)] * (1 + relative));
    }
    EXPECT_FALSE(judged.judge().passed) << to_string(dtype);
  }
}

TEST(Gates, FailAScaleThatIsALittleWrong) {
  for (const DType dtype : kTypes) {
    Judged judged(problem_of(dtype));
    Problem wrong = judged.host().problem;
    wrong.softmax_scale = 1.05f / std::sqrt(32.0f) * (size_of(dtype) == 1 ? 1.3f : 1.0f);
    ASSERT_TRUE(run_plan(make_plan(wrong), judged.host().arguments()).ok());
    EXPECT_FALSE(judged.judge().passed) << to_string(dtype);
  }
}

TEST(Gates, FailTheWrongDiagonal) {
  for (const DType dtype : kTypes) {
    Judged judged(problem_of(dtype));
    Problem wrong = judged.host().problem;
    wrong.alignment = Alignment::given;
    wrong.causal_offset = 64 - 48 - 1;  // one key short
    ASSERT_TRUE(run_plan(make_plan(wrong), judged.host().arguments()).ok());
    EXPECT_FALSE(judged.judge().passed) << to_string(dtype);
  }
}

TEST(Gates, FailA16BitResultWorseThanTwiceTheNaive) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Problem problem;  // many keys, to keep the naive error small
    problem.q = TensorDesc::contiguous(dtype, {1, 1, 8, 32});
    problem.k = problem.v = TensorDesc::contiguous(dtype, {1, 1, 1024, 32});
    problem.o = TensorDesc::contiguous(DType::f32, {1, 1, 8, 32});
    Judged judged(problem);
    const bench::GateLimits limits = bench::gate_limits(dtype);
    const double allowed = 2 * judged.reference().naive_max_error + *limits.naive_allowance;
    ASSERT_GT(judged.reference().naive_max_error, 0);
    ASSERT_LT(1.1 * allowed, limits.max_scaled_error);  // otherwise the other gate fails first
    judged.o().set(17, judged.reference().o[17] + 1.1 * allowed);
    judged.expect_failure("max error");
    judged.o().set(17, judged.reference().o[17] + 0.9 * allowed);
    EXPECT_TRUE(judged.judge().passed) << judged.judge().failure;
  }
}

// Numbers that round to a given one lie between the midpoints to its neighbours; the largest one
// has no upper bound.
TEST(Gates, DistancesFromAnFp8NumberBeginAtHalfAUnit) {
  const auto e4m3 = [](double stored, double x) {
    return bench::distance_from_rounding(DType::f8e4m3, stored, x);
  };
  EXPECT_EQ(e4m3(1.0, 1.0), 0);
  EXPECT_EQ(e4m3(1.0, 1.0625), 0);
  EXPECT_EQ(e4m3(1.0, 1.125), 0.0625);
  EXPECT_EQ(e4m3(1.0, 0.96875), 0);  // half as far below a power of two
  EXPECT_EQ(e4m3(1.0, 0.9375), 0.03125);
  EXPECT_EQ(e4m3(-1.0, -1.125), 0.0625);
  EXPECT_EQ(e4m3(-1.0, 1.0), 1.96875);
  EXPECT_EQ(e4m3(0.0, -0x1p-10), 0);
  EXPECT_EQ(e4m3(-0.0, 0x1p-9), 0x1p-10);
  EXPECT_EQ(e4m3(448, 1e9), 0);
  EXPECT_EQ(e4m3(448, kInf), 0);
  EXPECT_EQ(e4m3(448, 430), 2);
  EXPECT_EQ(e4m3(416, kInf), kInf);
  EXPECT_EQ(e4m3(448, -kInf), kInf);
  EXPECT_EQ(bench::distance_from_rounding(DType::f8e5m2, 57344, 1e9), 0);
  EXPECT_EQ(bench::distance_from_rounding(DType::f8e5m2, 1.0, 1.25), 0.125);
  // The distance is 0 for every number that rounds to the given one.
  bench::Random random(4);
  for (int n = 0; n < 2000; ++n) {
    const double x = random.normal() * std::exp2(static_cast<double>(random.integer(-20, 20)));
    for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
      unsigned char byte = 0;
      store_element(dtype, &byte, 0, x);
      EXPECT_EQ(bench::distance_from_rounding(dtype, load_element(dtype, &byte, 0), x), 0) << x;
    }
  }
}

Problem fp8_output(DType dtype, DType o_dtype) {
  Problem problem = problem_of(dtype);
  problem.o.dtype = o_dtype;
  problem.o_scale = TensorDesc::contiguous(DType::f32, {1, 4});
  problem.amax_o = problem.amax_s = problem.o_scale;
  return problem;
}

// A correctly rounded output passes with small limits; a neighbouring number fails, and so does one
// that was divided by another head's scale.
TEST(Gates, HoldAnFp8OutputToTheLimitsOfItsInputs) {
  for (const DType dtype : kTypes) {
    for (const DType o_dtype : {DType::f8e4m3, DType::f8e5m2}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " to " + std::string(to_string(o_dtype)));
      const Problem problem = fp8_output(dtype, o_dtype);
      EXPECT_EQ(bench::gate_limits(problem).relative_error,
                bench::gate_limits(dtype).relative_error);
      Judged judged(problem, 1, [](HostProblem& host) {
        for (int64_t h = 0; h < 4; ++h) host.at("o_scale").set(h, std::exp2(h));
      });
      const auto scaled = [&](size_t i) {
        return judged.reference().o[i] / judged.reference().o_scale[i];
      };
      judged.set_scaled();
      const bench::Verdict verdict = judged.judge();
      EXPECT_TRUE(verdict.passed) << verdict.failure;
      EXPECT_EQ(verdict.max_scaled_error, 0);
      const double limit = bench::gate_limits(dtype).max_scaled_error;
      size_t element = 0;  // a number with several fp8 bits
      while (std::abs(judged.reference().o[element]) < 0.3) ++element;
      const double right = judged.reference().o[element];
      const double unit = o_dtype == DType::f8e4m3 ? 0.125 : 0.25;
      const double off = (std::abs(right) * unit + 1.6 * limit * std::max(1.0, std::abs(right)));
      judged.o().set(static_cast<int64_t>(element),
                     (right + off) / judged.reference().o_scale[element]);
      SCOPED_TRACE(std::to_string(right) + " is " +
                   std::to_string(judged.o().get(static_cast<int64_t>(element))));
      judged.expect_failure("max scaled error");
      judged.o().set(static_cast<int64_t>(element), kNaN);
      judged.expect_failure("is nan");
      judged.o().set(static_cast<int64_t>(element), scaled(element));
      for (int64_t i = 0; i < 48 * 32; ++i) {
        judged.o().set(
            i, judged.reference().o[static_cast<size_t>(i)] / judged.reference().o_scale.back());
      }
      EXPECT_FALSE(judged.judge().passed);
    }
  }
}

// A saturated number may stand for an infinity; an infinity of e5m2 never passes.
TEST(Gates, AnInfinityOfAnFp8OutputIsTheLargestNumber) {
  Judged judged(fp8_output(DType::f32, DType::f8e5m2), 1,
                [](HostProblem& host) { host.at("v").set(7, kInf); });
  judged.set_scaled();
  EXPECT_EQ(judged.o().get(kElement), 57344);
  EXPECT_TRUE(judged.judge().passed) << judged.judge().failure;
  auto* const byte = static_cast<unsigned char*>(judged.o().data()) + kElement;
  *byte = 0x7C;
  judged.expect_failure("o[0, 0, 5, 7] is inf");
  *byte = 0xFB;
  judged.expect_failure("o[0, 0, 5, 7] is -57344, wanted inf");
  *byte = 0x7A;
  judged.expect_failure("o[0, 0, 5, 7] is 49152, wanted inf");
}

TEST(Gates, FailALargestValueThatIsOff) {
  for (const DType dtype : kTypes) {
    Problem problem = problem_of(dtype);
    problem.amax_o = problem.amax_s = problem.max_logit =
        TensorDesc::contiguous(DType::f32, {1, 4});
    Judged judged(problem);
    ASSERT_TRUE(judged.judge().passed) << judged.judge().failure;
    const bench::GateLimits limits = bench::gate_limits(dtype);
    const auto expect_both = [&](const char* name, double right, double limit) {
      for (const double sign : {1.0, -1.0}) {
        judged.host().at(name).set(2, right + sign * 0.8 * limit);
        EXPECT_TRUE(judged.judge().passed) << name << ": " << judged.judge().failure;
        judged.host().at(name).set(2, right + sign * 1.2 * limit);
        judged.expect_failure(std::string(name) + "[0, 2] is ");
      }
      for (const double kind : {kNaN, kInf, -kInf, -right}) {
        judged.host().at(name).set(2, kind);
        judged.expect_failure(std::string(name) + "[0, 2] is ");
      }
      judged.host().at(name).set(2, right);
    };
    const auto& [of_o, of_s, of_scores] = judged.reference().largest;
    const double o = of_o[2], s = of_s[2];
    expect_both("amax_o", o, limits.max_scaled_error * std::max(1.0, o));
    expect_both("amax_s", s, 2 * limits.lse_error * s);
    expect_both("max_logit", of_scores[2],
                limits.lse_error + std::abs(of_scores[2]) * judged.reference().lse_rounding);
  }
}

TEST(Gates, FailTooManyOutliersOfFp8) {
  Problem problem = problem_of(DType::f8e4m3);
  problem.o.dtype = DType::f32;
  Judged judged(problem);
  const int64_t allowed = judged.o().elements() / 100;
  for (int64_t i = 0; i <= allowed; ++i) {
    if (i == allowed) {
      EXPECT_TRUE(judged.judge().passed) << judged.judge().failure;
    }
    judged.o().set(i, judged.reference().o[static_cast<size_t>(i)] + 0.055);
  }
  judged.expect_failure("outliers");
}

TEST(Gates, FailAnUnwrittenElement) {
  for (const DType dtype : kTypes) {
    Judged judged(problem_of(dtype));
    judged.o().set(77, kNaN);
    judged.expect_failure("o[0, 0, 2, 13] is nan");
    Judged other(problem_of(dtype));
    other.lse().set(50, kNaN);
    other.expect_failure("lse[0, 1, 2] is nan");
  }
}

TEST(Gates, FailOutputsThatWereNeverWritten) {
  for (const DType dtype : kTypes) {
    Judged judged(problem_of(dtype));
    judged.o().poison();
    judged.expect_failure("nan, wanted");
  }
}

TEST(Gates, FailAnLseThatIsOff) {
  for (const DType dtype : kTypes) {
    Judged judged(problem_of(dtype));
    judged.lse().set(3, judged.reference().lse[3] + 1.5 * bench::gate_limits(dtype).lse_error);
    judged.expect_failure("LSE error");
    judged.lse().set(3, -kInf);
    judged.expect_failure("lse[0, 0, 3] is -inf");
  }
}

TEST(Gates, FailAMaskedRowThatIsNotZero) {
  Problem problem = problem_of(DType::f16);
  problem.alignment = Alignment::given;
  problem.causal_offset = -4;  // queries 0 to 3 see nothing
  Judged judged(problem);
  ASSERT_TRUE(judged.judge().passed) << judged.judge().failure;
  ASSERT_EQ(judged.reference().o[5], 0);
  judged.o().set(5, 0.01);
  EXPECT_FALSE(judged.judge().passed);
  judged.o().set(5, 0);
  judged.lse().set(1, -1e30);
  judged.expect_failure("wanted -inf");
}

TEST(Gates, NaNBelongsInItsRowAndNowhereElse) {
  const auto nan_in_query_9 = [](HostProblem& host) { host.at("q").set(9 * 32 + 5, kNaN); };
  Judged judged(problem_of(DType::bf16), 1, nan_in_query_9);
  ASSERT_TRUE(std::isnan(judged.reference().o[9 * 32]));
  EXPECT_TRUE(judged.judge().passed) << judged.judge().failure;
  judged.o().set(9 * 32 + 3, 0.5);  // NaN lost
  judged.expect_failure("o[0, 0, 9, 3] is 0.5, wanted nan");
  judged.o().set(9 * 32 + 3, kNaN);
  judged.o().set(10 * 32, kNaN);  // NaN in the next row, too
  judged.expect_failure("o[0, 0, 10, 0] is nan");
  Judged other(problem_of(DType::bf16), 1, nan_in_query_9);
  other.lse().set(9, 0.0);
  other.expect_failure("lse[0, 0, 9] is 0, wanted nan");
}

TEST(Gates, NoNonFiniteValueStandsForAnother) {
  constexpr double kKinds[] = {kNaN, kInf, -kInf};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const double kind : kKinds) {
      // All 48 queries see value 0, column 7, of KV head 0, which query heads 0 and 1 share.
      Judged judged(problem_of(dtype), 1, [=](HostProblem& host) { host.at("v").set(7, kind); });
      EXPECT_TRUE(judged.judge().passed) << judged.judge().failure;
      for (const double other : kKinds) {
        judged.o().set(kElement, other);
        EXPECT_EQ(judged.judge().passed, kind == other || (std::isnan(kind) && std::isnan(other)))
            << to_string(dtype) << ": " << other << " for " << kind;
      }
      judged.o().set(kElement, 0.0);
      judged.expect_failure("o[0, 0, 5, 7] is 0, wanted");
    }
    Judged nan(problem_of(dtype), 1, [](HostProblem& host) { host.at("k").set(0, kNaN); });
    nan.lse().set(5, kInf);
    nan.expect_failure("lse[0, 0, 5] is inf, wanted nan");
    Judged finite(problem_of(dtype));
    for (const double kind : kKinds) {
      finite.o().set(kElement, kind);
      finite.expect_failure("o[0, 0, 5, 7] is");
    }
  }
}

// An infinity times a weight that is 0 in 16 bits may be NaN, but nothing else may.
TEST(Gates, AnInfinityWithoutWeightMayBeNaN) {
  for (const DType dtype : {DType::f16, DType::f32}) {
    Problem problem = problem_of(dtype);
    problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {4});
    Judged judged(problem, 1, [](HostProblem& host) {
      host.at("alibi_slopes").fill([] { return 2.0; });
      host.at("v").set(7, kInf);             // key 0: query 0 is 16 keys away, query 5 is 21
      host.at("v").set(63 * 32 + 9, -kInf);  // the last key: only the last query sees it
    });
    EXPECT_TRUE(judged.judge().passed) << judged.judge().failure;
    judged.o().set(kElement, kNaN);
    EXPECT_EQ(judged.judge().passed, dtype == DType::f16);
    judged.o().set(kElement, -kInf);
    judged.expect_failure("o[0, 0, 5, 7] is -inf, wanted inf");
    judged.o().set(kElement, kInf);
    judged.o().set(47 * 32 + 9, kNaN);  // its weight exceeds all others
    judged.expect_failure("o[0, 0, 47, 9] is nan, wanted -inf");
  }
}

// Only a problem that declares scores past fp32's largest number may have infinities or NaN instead.
TEST(Gates, ScoresPastFp32MayBeInfiniteOrNaN) {
  Judged judged(problem_of(DType::bf16));
  bench::Reference past = judged.reference();
  past.past_fp32 = true;
  for (const double kind : {kNaN, kInf, -kInf}) {
    judged.o().set(kElement, kind);
    judged.lse().set(5, kind);
    EXPECT_TRUE(bench::judge(judged.host(), past).passed);
    EXPECT_FALSE(judged.judge().passed);
  }
  judged.o().set(kElement, 7.0);
  EXPECT_FALSE(bench::judge(judged.host(), past).passed);
}

// The part of an LSE that fp32 may lose is added to the limit, and nothing more.
TEST(Gates, AnLseMayLoseItsRounding) {
  Judged judged(problem_of(DType::f32));
  bench::Reference rounded = judged.reference();
  rounded.lse[3] = 1e6;
  rounded.lse_rounding = 1e-6;
  judged.lse().set(3, 1e6 + 0.9);
  EXPECT_TRUE(bench::judge(judged.host(), rounded).passed);
  judged.lse().set(3, 1e6 + 1.2);
  EXPECT_FALSE(bench::judge(judged.host(), rounded).passed);
}

TEST(Gates, FailAWriteOutsideOfTheElements) {
  Problem problem = problem_of(DType::f16);
  problem.o = TensorDesc::strided(DType::f16, {1, 4, 48, 32}, {4 * 48 * 40, 48 * 40, 40, 1});
  for (const int64_t element :
       {int64_t{-1}, int64_t{32}, int64_t{40 + 39}, int64_t{4 * 48 * 40 - 8}}) {
    Judged judged(problem);
    ASSERT_TRUE(judged.judge().passed) << judged.judge().failure;
    store_element(DType::f16, judged.o().data(), element, 0.0);
    judged.expect_failure("outside");
  }
}

TEST(Gates, FailAnInputThatWasWrittenAround) {
  for (const char* const name : {"q", "k", "v"}) {
    Judged judged(problem_of(DType::f32));
    store_element(DType::f32, judged.host().at(name).data(), -3, 1.0);
    judged.expect_failure("outside");
  }
}

TEST(Canaries, SurroundEveryLayout) {
  for (const TensorDesc& desc :
       {TensorDesc::contiguous(DType::f16, {3, 5}),
        TensorDesc::strided(DType::f32, {3, 5}, {-7, 1}),
        TensorDesc::strided(DType::f32, {2, 3}, {1, -4}), TensorDesc::contiguous(DType::i32, {0}),
        TensorDesc::strided(DType::bf16, {3, 4}, {0, 2})}) {
    HostTensor tensor(desc);
    EXPECT_TRUE(tensor.canaries_intact());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.memory().data()) % 256, 0u);
    tensor.fill([] { return 1.0; });
    EXPECT_TRUE(tensor.canaries_intact());
    for (int64_t i = 0; i < tensor.elements(); ++i) EXPECT_EQ(tensor.get(i), 1.0);
    for (const size_t byte : {size_t{0}, HostTensor::kGuardBytes - 1, tensor.memory().size() - 1}) {
      tensor.memory()[byte] = std::byte{0};
      EXPECT_FALSE(tensor.canaries_intact());
      tensor.memory()[byte] = std::byte{0xFF};
    }
  }
}

}  // namespace
}  // namespace flashcore

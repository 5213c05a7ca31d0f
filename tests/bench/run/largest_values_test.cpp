// The gate of amax_o and amax_s with sampled rows: what it passes and fails.
#include "bench/run/largest_values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/run/workload.hpp"

namespace flashcore::bench {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeads = 3, kElements = 4 * 16;

// Three heads of O, each with one element of `largest`, the expected amax_o.
struct Written {
  explicit Written(DType o_dtype) {
    Case one{
        .name = "test", .dtype = DType::f8e4m3, .heads_q = kHeads, .seqlen_q = 4, .seqlen_kv = 4};
    one.head_dim = 16;
    one.o_dtype = o_dtype;
    one.largest = true;
    problem = to_problem(one);
  }

  std::string failure() const {
    const double scale = problem.o_scale ? kOutputScale : 1;
    return largest_values_failure(
        problem, [&](std::string_view, int64_t, HostTensor& to) { to.set(0, kOutputScale); },
        [&](std::string_view name, int64_t begin, HostTensor& to) {
          if (name == "amax_o") return to.set(0, amax_o[static_cast<size_t>(begin)]);
          if (name == "amax_s") return to.set(0, amax_s[static_cast<size_t>(begin)]);
          const auto head = static_cast<size_t>(begin / kElements);
          for (int64_t i = 0; i < kElements; ++i) to.set(i, i == 7 ? -largest[head] / scale : 0.01);
        });
  }

  Problem problem;
  std::vector<double> largest{1.3, 0.71, 2.9}, amax_o = largest, amax_s{1, 0.2, 1e-6};
};

TEST(LargestValues, PassWhatOWasRoundedFrom) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
    EXPECT_EQ(Written(dtype).failure(), "") << to_string(dtype);
  }
}

TEST(LargestValues, FailOthers) {
  for (const double wrong : {2.5, 3.3, 0.0, -2.9, std::numeric_limits<double>::quiet_NaN()}) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f8e4m3}) {
      Written written(dtype);
      written.amax_o[2] = wrong;
      EXPECT_THAT(written.failure(), HasSubstr("amax_o of head 2 is")) << wrong;
    }
  }
  Written swapped(DType::bf16);
  std::swap(swapped.amax_o[0], swapped.amax_o[1]);
  EXPECT_THAT(swapped.failure(), HasSubstr("amax_o of head 0"));
}

TEST(LargestValues, FailWhatIsNoProbability) {
  for (const double wrong : {0.0, 1.1, -0.5, std::numeric_limits<double>::quiet_NaN()}) {
    Written written(DType::bf16);
    written.amax_s[1] = wrong;
    EXPECT_THAT(written.failure(), HasSubstr("amax_s of head 1 is")) << wrong;
  }
}

TEST(LargestValues, OfAnOThatSaturatesMayBeLarger) {
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
    Written written(dtype);
    written.largest[1] = (dtype == DType::f8e4m3 ? 448 : 57344) * kOutputScale;
    written.amax_o[1] = 3 * written.largest[1];
    EXPECT_EQ(written.failure(), "");
    written.amax_o[1] = written.largest[1] / 2;
    EXPECT_THAT(written.failure(), HasSubstr("amax_o of head 1 is"));
  }
}

TEST(LargestValues, MayBeOfAllHeads) {
  Written written(DType::f8e4m3);
  written.problem.amax_o = written.problem.amax_s = TensorDesc::contiguous(DType::f32, {1, 1});
  written.amax_o = {2.9};
  EXPECT_EQ(written.failure(), "");
  written.amax_o = {1.3};
  EXPECT_THAT(written.failure(), HasSubstr("amax_o of head 0 is"));
}

// Rows of a long given problem are sampled; the largest values cover all rows.
TEST(LargestValues, OfALongGivenProblemAreJudged) {
  Case one{.name = "test", .heads_q = 2, .seqlen_q = 2048, .seqlen_kv = 2048};
  one.head_dim = 64;
  one.largest = true;
  const Problem problem = to_problem(one);
  Problem without = problem;
  without.amax_s.reset();
  for (const Problem& planned : {problem, without}) {
    Result<std::unique_ptr<Workload>> made = given_workload(fill(one, 3), PlanOptions{});
    ASSERT_TRUE(made.ok()) << made.status().message();
    ASSERT_THAT((*made)->judged(), HasSubstr(" of 4096 rows"));
    const Result<Plan> plan = make_plan(planned);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Result<TimedCall> call = (*made)->prepare(*plan);
    ASSERT_TRUE(call.ok() && (*call)(Stream{}).ok());
    const Result<Verdict> verdict = (*made)->judge();
    ASSERT_TRUE(verdict.ok()) << verdict.status().message();
    EXPECT_EQ(verdict->passed, planned.amax_s.has_value());
    EXPECT_EQ(verdict->failure.empty(), verdict->passed);
    if (!verdict->passed) {
      EXPECT_THAT(verdict->failure, HasSubstr("amax_s of head 0 is"));
    }
  }
}

}  // namespace
}  // namespace flashcore::bench

// Why a kernel leaves a problem that it computes to another.
#include "tuning/declines.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "problem/problem.hpp"

namespace flashcore::tuning {
namespace {

using testing::HasSubstr;

TEST(Sm90ThroughputDeclines, FewQueriesAgainstManyKeysAreForTheKernelThatSplitsThem) {
  const auto declines = [](int64_t queries, int64_t keys, int64_t batch) {
    Problem p;
    p.q = p.o = TensorDesc::contiguous(DType::bf16, {batch, 8, queries, 128});
    p.k = p.v = TensorDesc::contiguous(DType::bf16, {batch, 8, keys, 128});
    const Result<ForwardProblem> resolved = resolve(p);
    EXPECT_TRUE(resolved.ok()) << resolved.status().message();
    PlanContext context;
    context.device.device = {DeviceKind::cuda, 0};
    context.device.compute_capability = 90;
    context.device.multiprocessors = 132;
    return sm90_throughput_declines(*resolved, context);
  };
  EXPECT_THAT(declines(1, 8192, 1), HasSubstr("q: has 1 rows and k 8192"));
  EXPECT_EQ(declines(512, 8192, 1), "");
  EXPECT_EQ(declines(1, 512, 1), "");
  EXPECT_EQ(declines(1, 8192, 100), "");
}

}  // namespace
}  // namespace flashcore::tuning

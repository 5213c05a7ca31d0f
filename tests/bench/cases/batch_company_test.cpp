// One entry in several batches: only the entry is the same in all of them.
#include "bench/cases/batch_company.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore {
namespace {

constexpr int64_t kSeqlen = 24, kHeadDim = 72;

// Computed by the fp64 reference, whose rows are independent.
std::vector<double> computed(const bench::BatchCompany& company, size_t batch, bool spoil) {
  bench::HostProblem host = company.fill(batch);
  if (spoil) {
    bench::HostTensor& v = host.at("v");
    for (int64_t i = 0; i < v.elements(); ++i) v.set(i, v.get(i) + 1);
  }
  PlanOptions options;
  options.kernel = "reference";
  const Result<Plan> plan = make_plan(host.problem, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return {};
  std::vector<std::byte> workspace(plan->workspace_bytes());
  const Status ran = plan->run(host.arguments(), workspace.data(), workspace.size());
  EXPECT_TRUE(ran.ok()) << ran.message();
  return company.results(host, batch);
}

TEST(BatchCompany, TheEntryIsTheSameInAllBatches) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const bench::BatchCompany company(seed, kSeqlen, kHeadDim);
    ASSERT_EQ(company.batches(), 8U);
    const std::vector<double> alone = computed(company, 0, false);
    ASSERT_FALSE(alone.empty());
    for (const double x : alone) ASSERT_FALSE(std::isnan(x)) << "seed " << seed;
    for (size_t batch = 1; batch < company.batches(); ++batch) {
      EXPECT_EQ(computed(company, batch, false), alone)
          << "seed " << seed << ": " << company.describe(batch);
    }
    EXPECT_NE(computed(company, 3, true), alone) << "other values would not be noticed";
  }
}

TEST(BatchCompany, BatchesHaveEveryForm) {
  int padded = 0, bounded = 0, packed = 0;
  const bench::BatchCompany company(5, kSeqlen, kHeadDim);
  for (size_t batch = 0; batch < company.batches(); ++batch) {
    const Problem problem = company.problem(batch);
    padded += problem.seqlens_kv ? 1 : 0;
    packed += problem.cu_seqlens_q ? 1 : 0;
    bounded += problem.max_seqlen_q > 0 ? 1 : 0;
  }
  EXPECT_EQ(padded, 2);
  EXPECT_EQ(packed, 4);
  EXPECT_EQ(bounded, 1);
}

}  // namespace
}  // namespace flashcore

// One entry in several batches: only the entry is the same in all of them.
#include "bench/cases/batch_invariance_cases.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore {
namespace {

constexpr int64_t kSeqlen = 24, kHeadDim = 72;

// Computed by the fp64 reference, whose rows are independent.
std::vector<double> computed(const bench::BatchInvarianceCases& cases, size_t batch, bool spoil) {
  bench::HostProblem host = cases.fill(batch);
  if (spoil) {
    bench::HostTensor& v = host.at(bench::v_is_in_k(host.problem) ? "k" : "v");
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
  return cases.results(host, batch);
}

TEST(BatchInvarianceCases, TheEntryIsTheSameInAllBatches) {
  for (uint64_t seed = 0; seed < 15; ++seed) {
    const bool latent = seed >= 12;
    const bench::BatchInvarianceCases cases(seed, latent ? 4 : kSeqlen, kHeadDim, latent);
    ASSERT_EQ(bench::v_is_in_k(cases.problem(0)), latent);
    ASSERT_EQ(cases.batches(), 8U);
    const std::vector<double> alone = computed(cases, 0, false);
    ASSERT_FALSE(alone.empty());
    for (const double x : alone) ASSERT_FALSE(std::isnan(x)) << "seed " << seed;
    for (size_t batch = 1; batch < cases.batches(); ++batch) {
      EXPECT_EQ(computed(cases, batch, false), alone)
          << "seed " << seed << ": " << cases.describe(batch);
    }
    EXPECT_NE(computed(cases, 3, true), alone) << "other values would not be noticed";
  }
}

TEST(BatchInvarianceCases, BatchesHaveEveryForm) {
  int padded = 0, bounded = 0, packed = 0;
  const bench::BatchInvarianceCases cases(5, kSeqlen, kHeadDim);
  for (size_t batch = 0; batch < cases.batches(); ++batch) {
    const Problem problem = cases.problem(batch);
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

#include "bench/cases/random_problem.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace flashcore::bench {
namespace {

double largest(const HostTensor& tensor) {
  double found = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) found = std::max(found, std::abs(tensor.get(i)));
  return found;
}

// Without draw_hostile_values, which changes elements.
TEST(RandomProblem, OfOneFp8TypeIsQuantisedAsAUserWould) {
  const RandomSpace space{.any_dtype = false,
                          .dtype = DType::f8e4m3,
                          .any_feature = false,
                          .any_head_dim = false,
                          .grouped_heads = false,
                          .hostile_values = false};
  int64_t strided = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const HostProblem host = random_problem(seed, space);
    const Problem& problem = host.problem;
    ASSERT_EQ(problem.q.dtype, DType::f8e4m3);
    ASSERT_EQ(problem.o.dtype, DType::f16);
    ASSERT_TRUE(problem.q_scale && problem.k_scale && problem.v_scale);
    for (const char* const name : {"q", "k", "v"}) {
      const HostTensor& tensor = host.at(name);
      if (tensor.elements() == 0) continue;
      EXPECT_EQ(largest(tensor), 448) << name << ", seed " << seed;
      if (!tensor.is_dense()) ++strided;
    }
  }
  EXPECT_GT(strided, 0);
}

// A seed with mixes gives the same problem as without, except for the types of K and V.
TEST(RandomProblem, MixesOfFp8ChangeNothingElse) {
  for (const bool caches : {false, true}) {
    RandomSpace space{
        .largest_seqlen = 40, .most_heads = 4, .more_outputs = true, .caches = caches};
    int64_t mixes = 0, of_k = 0, of_v = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      space.mixes_fp8 = false;
      const Problem without = RandomDraw(seed, space).problem();
      ASSERT_FALSE(mixes_fp8(without)) << seed;
      space.mixes_fp8 = true;
      Problem with = RandomDraw(seed, space).problem();
      mixes += mixes_fp8(with) ? 1 : 0;
      of_k += with.k.dtype != without.k.dtype ? 1 : 0;
      of_v += with.v.dtype != without.v.dtype ? 1 : 0;
      with.k.dtype = without.k.dtype, with.v.dtype = without.v.dtype;
      ASSERT_EQ(describe(with), describe(without)) << seed;
    }
    EXPECT_GT(mixes, 20);
    EXPECT_GT(of_k, 10);
    EXPECT_GT(of_v, 10);
  }
}

// Entries of packed tensors are counted by their lengths.
TEST(RandomProblem, HasAtMostSoManyHeads) {
  constexpr int64_t kMost = 4;
  const RandomSpace space{.most_heads = kMost};
  int64_t largest_of_all = 0, several_entries = 0, several_of_keys = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Problem problem = RandomDraw(seed, space).problem();
    const bool packed = problem.cu_seqlens_q.has_value();
    const int64_t batch = packed ? problem.cu_seqlens_q->shape[0] - 1 : problem.q.shape[0];
    const int64_t heads_q = problem.q.shape[1], heads_kv = problem.k.shape[1];
    EXPECT_EQ(heads_q % heads_kv, 0) << seed;
    EXPECT_LE(batch * heads_q, kMost) << seed;
    largest_of_all = std::max(largest_of_all, batch * heads_q);
    several_entries += batch > 1 && heads_q > 1 ? 1 : 0;
    several_of_keys += heads_q > heads_kv && heads_kv > 1 ? 1 : 0;
  }
  EXPECT_EQ(largest_of_all, kMost);
  EXPECT_GT(several_entries, 20);
  EXPECT_GT(several_of_keys, 20);
}

}  // namespace
}  // namespace flashcore::bench

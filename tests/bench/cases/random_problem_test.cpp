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

// Without draw_hostile_values, which sets elements to other values.
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

}  // namespace
}  // namespace flashcore::bench

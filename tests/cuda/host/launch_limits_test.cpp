// Sizes that no CUDA kernel takes.
#include "cuda/host/launch_limits.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "kernel/supports.hpp"

namespace flashcore::cuda::host {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 29;

ForwardProblem problem(int64_t batch, int64_t heads, int64_t rows_q, int64_t rows_kv) {
  ForwardProblem p;
  p.batch = batch;
  p.heads_q = heads;
  p.seqlen_q = rows_q;
  p.seqlen_kv = rows_kv;
  return p;
}

TEST(LaunchLimits, RowsAreCountedInThirtyTwoBits) {
  EXPECT_EQ(refuse_rows(problem(1, 1, kMostRows - 1, kMostRows - 1), kMostRows), "");
  EXPECT_EQ(refuse_rows(problem(1, 1, kMostRows, 1), kMostRows),
            "q: has 536870912 rows, wanted less than 536870912");
  EXPECT_EQ(refuse_rows(problem(1, 1, 1, kMostRows + 5), kMostRows),
            "k: has 536870917 rows, wanted less than 536870912");
}

TEST(LaunchLimits, RowsOfPackedTensorsAreThoseOfAllEntries) {
  ForwardProblem p = problem(4, 1, 1, 1);
  p.packed = true;
  p.total_q = 100;
  p.total_kv = kMostRows;
  EXPECT_EQ(refuse_rows(p, kMostRows), "k: has 536870912 rows, wanted less than 536870912");
}

TEST(LaunchLimits, TilesAndHeadsFitALaunch) {
  constexpr int64_t kMost = 2147483647;
  EXPECT_EQ(refuse_tiles(problem(1, kMost, 64, 1), 64), "");
  EXPECT_EQ(refuse_tiles(problem(0, 0, 0, 0), 64), "");
  EXPECT_EQ(refuse_tiles(problem(1, kMost, 65, 1), 64),
            "q: has 2 tiles of 64 queries in each of 2147483647 heads, wanted at most 2147483647 "
            "in all");
  EXPECT_EQ(refuse_tiles(problem(3, kMost, 1, 1), 64),
            "q: has 3 sequences of 2147483647 heads, wanted at most 2147483647 heads in all");
}

}  // namespace
}  // namespace flashcore::cuda::host

// The choice between forward_sm90's tiles, against what was measured of both.
#include "dispatch/forward_sm90_tile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace flashcore {
namespace {

namespace sm90 = cuda::forward_sm90;

constexpr int64_t kMultiprocessors = 132;  // of the GPU that was measured
constexpr int kTall = 192, kShort = 64;    // rows of the two tiles at head dimension 64

ForwardProblem problem(int64_t batch, int64_t heads, int64_t seqlen, bool causal,
                       int64_t head_dim = 64) {
  ForwardProblem p;
  p.batch = batch;
  p.heads_q = p.heads_kv = heads;
  p.seqlen_q = p.seqlen_kv = seqlen;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.softmax_scale = 0.125F;
  if (causal) p.band.right = 0;
  return p;
}

int rows_of(const ForwardProblem& p, int64_t multiprocessors = kMultiprocessors) {
  return sm90::kConfigs[static_cast<size_t>(choose_sm90_tile(p, multiprocessors))].block_q();
}

struct Measured {
  int64_t batch, heads, seqlen;
  bool causal;
  double tall, small;
};

// {batch, heads, rows, causal, us with the tall tile, us with the short one}: in turns, bf16 and
// fp16, two runs on H200s.
constexpr std::array<Measured, 67> kMeasured{
    {{32, 32, 512, false, 179.84, 206.42},   {16, 32, 1024, false, 307.19, 343.20},
     {8, 32, 2048, false, 571.42, 634.24},   {4, 32, 4096, false, 1038.46, 1109.70},
     {2, 32, 8192, false, 2031.84, 2270.50}, {1, 32, 16384, false, 3903.01, 4535.46},
     {2, 8, 2048, false, 49.11, 36.62},      {32, 32, 512, true, 136.84, 164.84},
     {16, 32, 1024, true, 208.95, 231.47},   {8, 32, 2048, true, 318.14, 356.57},
     {4, 32, 4096, true, 587.71, 634.86},    {2, 32, 8192, true, 1040.06, 1103.30},
     {1, 32, 16384, true, 2030.50, 2329.09}, {2, 8, 2048, true, 32.19, 28.82},
     {1, 8, 128, false, 5.71, 4.63},         {1, 8, 256, false, 7.77, 5.65},
     {1, 8, 512, false, 10.33, 7.18},        {1, 8, 1024, false, 15.62, 10.26},
     {1, 16, 128, false, 5.74, 4.68},        {1, 16, 256, false, 7.87, 5.71},
     {1, 16, 512, false, 10.41, 7.34},       {1, 16, 1024, false, 15.73, 12.48},
     {1, 32, 128, false, 5.85, 4.70},        {1, 32, 256, false, 8.02, 5.86},
     {1, 32, 512, false, 10.61, 8.82},       {1, 32, 1024, false, 28.27, 21.81},
     {1, 12, 1536, false, 21.13, 26.45},     {1, 16, 2048, false, 49.09, 36.69},
     {2, 16, 1024, false, 28.37, 21.65},     {4, 12, 512, false, 17.57, 13.98},
     {8, 16, 512, false, 24.82, 26.13},      {4, 16, 768, false, 23.31, 25.91},
     {1, 8, 4096, false, 91.78, 66.97},      {1, 24, 4096, false, 195.64, 216.38},
     {1, 10, 8192, false, 361.30, 329.52},   {3, 16, 1984, false, 101.38, 116.05},
     {16, 12, 384, false, 21.54, 26.80},     {32, 16, 192, false, 21.30, 24.68},
     {32, 16, 256, false, 38.52, 33.73},     {64, 16, 128, false, 28.66, 25.57},
     {1, 8, 128, true, 5.72, 4.83},          {1, 8, 256, true, 6.84, 5.80},
     {1, 8, 512, true, 8.66, 7.38},          {1, 8, 1024, true, 14.61, 10.61},
     {1, 16, 128, true, 5.78, 5.06},         {1, 16, 256, true, 6.93, 6.26},
     {1, 16, 512, true, 8.82, 7.80},         {2, 8, 2048, false, 49.80, 36.72},
     {2, 8, 2048, true, 33.15, 28.12},       {1, 16, 1024, true, 14.97, 11.76},
     {1, 32, 128, true, 6.52, 5.06},         {1, 32, 256, true, 7.19, 6.28},
     {1, 32, 512, true, 9.44, 8.51},         {1, 32, 1024, true, 21.06, 17.63},
     {1, 12, 1536, true, 20.68, 17.53},      {1, 16, 2048, true, 32.71, 27.86},
     {2, 16, 1024, true, 20.96, 17.54},      {4, 12, 512, true, 13.19, 12.00},
     {8, 16, 512, true, 19.53, 20.54},       {4, 16, 768, true, 19.24, 19.79},
     {1, 8, 4096, true, 56.12, 48.37},       {1, 24, 4096, true, 108.65, 115.70},
     {1, 10, 8192, true, 171.68, 176.88},    {3, 16, 1984, true, 61.03, 63.81},
     {16, 12, 384, true, 19.99, 21.51},      {32, 16, 192, true, 20.24, 22.27},
     {32, 16, 256, true, 34.12, 31.25}}};

TEST(ForwardSm90Tile, TheChoiceIsRight) {
  size_t right = 0, short_is_best = 0;
  for (const Measured& m : kMeasured) {
    const int rows = rows_of(problem(m.batch, m.heads, m.seqlen, m.causal));
    ASSERT_TRUE(rows == kTall || rows == kShort);
    const double best = std::min(m.tall, m.small), chosen = rows == kTall ? m.tall : m.small;
    EXPECT_LE(chosen, 1.05 * best)
        << m.batch << " x " << m.heads << " x " << m.seqlen << (m.causal ? " causal" : "");
    right += chosen == best ? 1 : 0;
    short_is_best += m.small < m.tall ? 1 : 0;
  }
  EXPECT_GE(static_cast<double>(right), 0.9 * static_cast<double>(kMeasured.size()));
  EXPECT_GT(short_is_best, kMeasured.size() / 4) << "a table in which one is always best";
  EXPECT_LT(short_is_best, kMeasured.size() * 3 / 4) << "tests nothing";
}

TEST(ForwardSm90Tile, ManyRowsAreTheTallTiles) {
  for (const bool causal : {false, true}) {
    EXPECT_EQ(rows_of(problem(1, 8, 128, causal)), kShort);
    EXPECT_EQ(rows_of(problem(16, 64, 4096, causal)), kTall);
  }
}

TEST(ForwardSm90Tile, TheRestHasOneTile) {
  for (const int head_dim : {72, 96, 128, 192, 256}) {
    EXPECT_EQ(sm90_tile_candidates(problem(1, 8, 128, false, head_dim)).size(), 1U) << head_dim;
    EXPECT_EQ(rows_of(problem(1, 8, 128, false, head_dim)), 128);
  }
  ForwardProblem capped = problem(1, 8, 128, false);
  capped.softcap = 30;
  EXPECT_EQ(sm90_tile_candidates(capped).size(), 1U);
  EXPECT_EQ(choose_sm90_tile(problem(1, 8, 128, false, 264), kMultiprocessors), -1);
}

TEST(ForwardSm90Tile, TimesGrowWithTheProblem) {
  for (const sm90::Config& config : sm90::kConfigs) {
    double before = 0;
    for (int64_t heads = 1; heads <= 4096; heads *= 2) {
      const double us = predicted_us(problem(1, heads, 1000, false), config, kMultiprocessors);
      EXPECT_GE(us, before);
      before = us;
    }
    EXPECT_GT(before, 0);
  }
}

TEST(ForwardSm90Tile, AnyShapeGetsOne) {
  for (const int64_t seqlen : {0, 1, 63, 64, 65, 191, 192, 193, 1 << 20}) {
    for (const int64_t heads : {0, 1, 1 << 15}) {
      for (const int64_t multiprocessors : {0, 1, 132}) {
        for (const bool causal : {false, true}) {
          const int rows = rows_of(problem(1, heads, seqlen, causal), multiprocessors);
          EXPECT_TRUE(rows == kTall || rows == kShort);
        }
      }
    }
  }
}

TEST(ForwardSm90Tile, UnevenTilesAreHandedOutOneByOne) {
  const sm90::Config& tall = sm90::kConfigs[0];
  ASSERT_EQ(tall.block_q(), kTall);
  EXPECT_FALSE(is_uneven(problem(1, 8, 384, false), tall));
  EXPECT_TRUE(is_uneven(problem(1, 8, 512, false), tall)) << "the last tile has two thirds";
  EXPECT_TRUE(is_uneven(problem(1, 8, 384, true), tall));
}

}  // namespace
}  // namespace flashcore

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

// {batch, heads, rows, causal, us with the tall tile, us with the short one}: in turns, bf16, on
// an H200.
constexpr std::array<Measured, 178> kMeasured{
    {{1, 4, 128, false, 5.09, 3.94},        {1, 4, 256, false, 6.95, 4.95},
     {1, 4, 384, false, 8.33, 5.70},        {1, 4, 512, false, 9.66, 6.34},
     {1, 4, 768, false, 12.17, 7.82},       {1, 4, 1024, false, 14.68, 9.34},
     {1, 4, 1536, false, 19.93, 12.34},     {1, 4, 2048, false, 25.09, 15.32},
     {1, 4, 4096, false, 45.65, 34.05},     {1, 8, 128, false, 5.10, 4.04},
     {1, 8, 256, false, 7.04, 4.92},        {1, 8, 384, false, 8.35, 5.68},
     {1, 8, 512, false, 9.76, 6.47},        {1, 8, 768, false, 12.34, 8.04},
     {1, 8, 1024, false, 14.83, 9.55},      {1, 8, 1536, false, 20.16, 15.15},
     {1, 8, 2048, false, 25.30, 19.14},     {1, 8, 4096, false, 88.87, 66.67},
     {1, 16, 128, false, 5.14, 4.10},       {1, 16, 256, false, 7.12, 5.04},
     {1, 16, 384, false, 8.51, 5.92},       {1, 16, 512, false, 9.83, 6.64},
     {1, 16, 768, false, 12.46, 9.55},      {1, 16, 1024, false, 14.92, 11.68},
     {1, 16, 1536, false, 20.42, 28.10},    {1, 16, 2048, false, 47.48, 36.40},
     {1, 16, 4096, false, 131.70, 130.76},  {1, 24, 128, false, 5.24, 4.13},
     {1, 24, 256, false, 7.22, 5.21},       {1, 24, 384, false, 8.59, 6.56},
     {1, 24, 512, false, 9.93, 7.72},       {1, 24, 768, false, 12.58, 15.72},
     {1, 24, 1024, false, 22.21, 20.54},    {1, 24, 1536, false, 37.76, 38.52},
     {1, 24, 2048, false, 47.70, 52.96},    {1, 24, 4096, false, 176.00, 196.77},
     {1, 32, 128, false, 5.33, 4.17},       {1, 32, 256, false, 7.27, 5.25},
     {1, 32, 384, false, 8.68, 6.79},       {1, 32, 512, false, 10.06, 7.85},
     {1, 32, 768, false, 12.83, 16.84},     {1, 32, 1024, false, 26.75, 21.11},
     {1, 32, 1536, false, 37.65, 41.40},    {1, 32, 2048, false, 69.69, 70.63},
     {1, 32, 4096, false, 261.28, 259.89},  {1, 64, 128, false, 5.44, 4.29},
     {1, 64, 256, false, 7.52, 5.95},       {1, 64, 384, false, 8.91, 11.24},
     {1, 64, 512, false, 16.76, 13.66},     {1, 64, 768, false, 22.15, 24.61},
     {1, 64, 1024, false, 38.66, 39.67},    {1, 64, 1536, false, 72.50, 82.82},
     {1, 64, 2048, false, 134.64, 140.90},  {1, 64, 4096, false, 475.78, 534.07},
     {2, 32, 128, false, 5.88, 4.63},       {2, 32, 256, false, 8.20, 6.17},
     {2, 32, 384, false, 9.05, 11.43},      {2, 32, 512, false, 16.99, 13.69},
     {2, 32, 768, false, 22.37, 24.54},     {2, 32, 1024, false, 38.68, 40.17},
     {2, 32, 1536, false, 72.24, 82.89},    {2, 32, 2048, false, 134.52, 139.94},
     {2, 32, 4096, false, 472.56, 553.15},  {4, 32, 128, false, 6.06, 5.13},
     {4, 32, 256, false, 13.04, 10.26},     {4, 32, 384, false, 14.92, 16.12},
     {4, 32, 512, false, 23.57, 24.54},     {4, 32, 768, false, 41.23, 49.09},
     {4, 32, 1024, false, 74.48, 79.57},    {4, 32, 1536, false, 140.06, 163.81},
     {4, 32, 2048, false, 246.10, 274.76},  {8, 32, 128, false, 9.37, 7.81},
     {8, 32, 256, false, 21.80, 16.86},     {8, 32, 384, false, 26.20, 30.54},
     {8, 32, 512, false, 43.74, 47.66},     {8, 32, 768, false, 78.41, 94.31},
     {8, 32, 1024, false, 140.44, 160.66},  {8, 32, 1536, false, 288.02, 324.68},
     {8, 32, 2048, false, 496.49, 555.83},  {16, 32, 128, false, 15.76, 13.73},
     {16, 32, 256, false, 39.08, 33.07},    {16, 32, 384, false, 50.35, 59.97},
     {16, 32, 512, false, 85.40, 91.38},    {16, 32, 768, false, 153.32, 180.85},
     {16, 32, 1024, false, 271.93, 303.49}, {32, 32, 128, false, 26.50, 23.34},
     {32, 32, 256, false, 68.32, 58.94},    {32, 32, 384, false, 93.43, 109.44},
     {32, 32, 512, false, 158.92, 179.24},  {1, 4, 128, true, 5.11, 4.36},
     {1, 4, 256, true, 6.00, 5.10},         {1, 4, 384, true, 7.47, 5.82},
     {1, 4, 512, true, 7.94, 6.50},         {1, 4, 768, true, 11.34, 8.04},
     {1, 4, 1024, true, 13.63, 9.52},       {1, 4, 1536, true, 19.00, 12.42},
     {1, 4, 2048, true, 23.19, 15.36},      {1, 4, 4096, true, 44.53, 30.60},
     {1, 8, 128, true, 5.08, 4.44},         {1, 8, 256, true, 5.93, 5.15},
     {1, 8, 384, true, 7.57, 5.96},         {1, 8, 512, true, 7.78, 6.62},
     {1, 8, 768, true, 11.37, 8.12},        {1, 8, 1024, true, 13.53, 9.58},
     {1, 8, 1536, true, 19.25, 13.38},      {1, 8, 2048, true, 23.12, 17.21},
     {1, 8, 4096, true, 45.17, 38.79},      {1, 16, 128, true, 5.23, 4.48},
     {1, 16, 256, true, 6.04, 5.40},        {1, 16, 384, true, 7.68, 6.08},
     {1, 16, 512, true, 8.15, 6.90},        {1, 16, 768, true, 11.62, 8.53},
     {1, 16, 1024, true, 13.92, 10.82},     {1, 16, 1536, true, 19.72, 16.26},
     {1, 16, 2048, true, 23.66, 24.65},     {1, 16, 4096, true, 69.70, 73.33},
     {1, 24, 128, true, 5.47, 4.58},        {1, 24, 256, true, 6.10, 5.53},
     {1, 24, 384, true, 7.78, 6.36},        {1, 24, 512, true, 8.35, 7.35},
     {1, 24, 768, true, 11.81, 10.75},      {1, 24, 1024, true, 14.51, 13.58},
     {1, 24, 1536, true, 19.75, 22.25},     {1, 24, 2048, true, 29.51, 33.34},
     {1, 24, 4096, true, 97.59, 109.07},    {1, 32, 128, true, 5.77, 4.56},
     {1, 32, 256, true, 6.21, 5.61},        {1, 32, 384, true, 7.85, 6.33},
     {1, 32, 512, true, 8.86, 7.52},        {1, 32, 768, true, 12.20, 12.59},
     {1, 32, 1024, true, 15.88, 15.59},     {1, 32, 1536, true, 24.91, 28.07},
     {1, 32, 2048, true, 39.90, 43.58},     {1, 32, 4096, true, 129.47, 144.20},
     {1, 64, 128, true, 6.14, 4.68},        {1, 64, 256, true, 6.90, 5.82},
     {1, 64, 384, true, 8.35, 11.09},       {1, 64, 512, true, 13.18, 13.08},
     {1, 64, 768, true, 16.59, 19.34},      {1, 64, 1024, true, 25.84, 28.27},
     {1, 64, 1536, true, 46.01, 52.80},     {1, 64, 2048, true, 74.13, 84.26},
     {1, 64, 4096, true, 250.99, 281.73},   {2, 32, 128, true, 6.22, 4.76},
     {2, 32, 256, true, 7.05, 5.93},        {2, 32, 384, true, 8.42, 11.43},
     {2, 32, 512, true, 13.18, 12.97},      {2, 32, 768, true, 16.58, 19.29},
     {2, 32, 1024, true, 25.85, 28.14},     {2, 32, 1536, true, 46.41, 53.01},
     {2, 32, 2048, true, 74.06, 84.66},     {2, 32, 4096, true, 257.92, 286.64},
     {4, 32, 128, true, 6.80, 5.47},        {4, 32, 256, true, 11.93, 11.00},
     {4, 32, 384, true, 13.45, 15.40},      {4, 32, 512, true, 18.67, 20.21},
     {4, 32, 768, true, 30.39, 35.31},      {4, 32, 1024, true, 52.07, 54.73},
     {4, 32, 1536, true, 87.32, 103.95},    {4, 32, 2048, true, 143.59, 166.68},
     {8, 32, 128, true, 10.69, 9.08},       {8, 32, 256, true, 19.75, 17.15},
     {8, 32, 384, true, 24.87, 27.98},      {8, 32, 512, true, 35.29, 40.14},
     {8, 32, 768, true, 58.09, 68.09},      {8, 32, 1024, true, 98.24, 105.27},
     {8, 32, 1536, true, 182.31, 211.04},   {8, 32, 2048, true, 284.82, 336.15},
     {16, 32, 128, true, 16.56, 14.22},     {16, 32, 256, true, 37.31, 32.00},
     {16, 32, 384, true, 46.21, 52.34},     {16, 32, 512, true, 65.84, 76.50},
     {16, 32, 768, true, 115.14, 136.84},   {16, 32, 1024, true, 187.00, 206.44},
     {32, 32, 128, true, 27.80, 28.91},     {32, 32, 256, true, 67.56, 60.62},
     {32, 32, 384, true, 85.66, 100.63},    {32, 32, 512, true, 124.19, 146.49}}};

TEST(ForwardSm90Tile, TheChoiceIsRight) {
  size_t right = 0, short_is_best = 0;
  for (const Measured& m : kMeasured) {
    const int rows = rows_of(problem(m.batch, m.heads, m.seqlen, m.causal));
    ASSERT_TRUE(rows == kTall || rows == kShort);
    const double best = std::min(m.tall, m.small), chosen = rows == kTall ? m.tall : m.small;
    EXPECT_LE(chosen, 1.045 * best)
        << m.batch << " x " << m.heads << " x " << m.seqlen << (m.causal ? " causal" : "");
    right += chosen == best ? 1 : 0;
    short_is_best += m.small < m.tall ? 1 : 0;
  }
  EXPECT_GE(right, 172U) << "docs/forward-sm90.md says so, of " << kMeasured.size();
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

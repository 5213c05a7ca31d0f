// The files of GPUs, and the constants for a GPU without a file.
#include "tuning/gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>

namespace flashcore::tuning {
namespace {

using testing::HasSubstr;

DeviceInfo device(const char* name, int32_t compute_capability, int32_t multiprocessors) {
  DeviceInfo info;
  info.device = {DeviceKind::cuda, 0};
  info.name = name;
  info.compute_capability = compute_capability;
  info.multiprocessors = multiprocessors;
  return info;
}

// The values that drivers report: the highest SM clock, and twice the memory clock times
// the bus width.
const DeviceInfo kH200 = device("NVIDIA H200", 90, 132);
const DeviceInfo kA100 = device("NVIDIA A100-SXM4-80GB", 80, 108);
const DeviceInfo kL4 = device("NVIDIA L4", 89, 58);
constexpr DeviceSpeed kA100Speed{1410, 2039}, kL4Speed{2040, 300};

constexpr WorkUnit kUnit{.tile = "forward_sm80_throughput",
                         .block_q = 128,
                         .group_q = 128,
                         .step_keys = 64,
                         .units_at_once = 2,
                         .most_at_once = 2};

ForwardProblem problem(int64_t heads, int64_t seqlen, int64_t head_dim = 64) {
  ForwardProblem p;
  p.dtype = DType::f16;
  p.batch = 1;
  p.heads_q = p.heads_kv = heads;
  p.seqlen_q = p.seqlen_kv = seqlen;
  p.head_dim_qk = p.head_dim_v = head_dim;
  return p;
}

TEST(GpuTables, HaveConstantsThatMakeSense) {
  ASSERT_FALSE(gpu_tables().empty());
  for (const GpuTable& table : gpu_tables()) {
    std::set<std::pair<std::string_view, int64_t>> seen;
    EXPECT_GT(table.launch, 0.3);
    EXPECT_LT(table.launch, 8);
    EXPECT_GT(table.error, 0);
    EXPECT_LT(table.error, 0.2) << "a model that is off by more chooses by chance";
    EXPECT_GT(table.speed.sm_clock_mhz, 500);
    EXPECT_GT(table.speed.memory_gb_s, 100);
    for (const TileConstants& one : table.tiles) {
      SCOPED_TRACE(std::string(table.gpu) + ", " + std::string(one.tile));
      EXPECT_TRUE(seen.insert({one.tile, one.head_dim}).second) << "twice";
      EXPECT_GT(one.constants.begin_and_end, 0.1);
      EXPECT_LT(one.constants.begin_and_end, 8);
      EXPECT_GT(one.constants.step, 0.05);
      EXPECT_LT(one.constants.step, 8);
      EXPECT_GT(one.constants.mask, 0.01);
      EXPECT_LT(one.constants.mask, 3);
      EXPECT_GT(one.constants.alone, 0.3);
      EXPECT_LE(one.constants.alone, 1);
      EXPECT_GT(one.constants.tail, 0.02);
      EXPECT_LT(one.constants.tail, 1.2);
    }
  }
}

TEST(GpuTables, AreLinearBetweenHeadDimensions) {
  static constexpr TileConstants kTiles[] = {{"a", 64, {1, 2, 3, 0.5, 0.25}},
                                             {"a", 128, {3, 6, 5, 0.75, 0.75}},
                                             {"b", 128, {7, 7, 7, 1, 1}}};
  const GpuTable table{.gpu = "x",
                       .compute_capability = 90,
                       .multiprocessors = 1,
                       .speed = {},
                       .rules = {},
                       .launch = 1,
                       .error = 1,
                       .most_waves = 1,
                       .most_steps = 1,
                       .tiles = kTiles};
  EXPECT_EQ(constants_of(table, "a", 32)->step, 2);
  EXPECT_EQ(constants_of(table, "a", 64)->step, 2);
  EXPECT_EQ(constants_of(table, "a", 256)->step, 6);
  const Constants between = *constants_of(table, "a", 96);
  EXPECT_DOUBLE_EQ(between.begin_and_end, 2);
  EXPECT_DOUBLE_EQ(between.step, 4);
  EXPECT_DOUBLE_EQ(between.mask, 4);
  EXPECT_DOUBLE_EQ(between.alone, 0.625);
  EXPECT_DOUBLE_EQ(between.tail, 0.5);
  EXPECT_EQ(constants_of(table, "b", 64)->step, 7);
  EXPECT_FALSE(constants_of(table, "c", 64));
}

TEST(Tuning, OfAMeasuredGpuIsItsFile) {
  ASSERT_TRUE(has_own_table(kH200));
  const Tuning tuning = tuning_of(kH200, {1, 1});
  EXPECT_EQ(tuning.table->gpu, "NVIDIA H200");
  EXPECT_TRUE(tuning.is_own);
  EXPECT_EQ(tuning.time_scale, 1) << "its clock needs no scaling";
  EXPECT_EQ(tuning.bytes_per_us, 1e3 * tuning.table->speed.memory_gb_s);
  EXPECT_EQ(tuning.margin(), 0);
  EXPECT_EQ(tuning.provenance(), "");
  EXPECT_FALSE(has_own_table(device("NVIDIA H200", 90, 16))) << "a part of one";
  EXPECT_FALSE(has_own_table(device("", 90, 132)));
}

TEST(Tuning, OfAnotherGpuIsScaledAndSaysSo) {
  for (const auto& [gpu, speed] : {std::pair{kA100, kA100Speed}, std::pair{kL4, kL4Speed}}) {
    SCOPED_TRACE(gpu.name);
    EXPECT_FALSE(has_own_table(gpu));
    const Tuning tuning = tuning_of(gpu, speed);
    EXPECT_FALSE(tuning.is_own);
    EXPECT_DOUBLE_EQ(tuning.time_scale, tuning.table->speed.sm_clock_mhz / speed.sm_clock_mhz);
    EXPECT_DOUBLE_EQ(tuning.bytes_per_us, 1e3 * speed.memory_gb_s);
    EXPECT_EQ(tuning.multiprocessors, gpu.multiprocessors);
    EXPECT_GT(tuning.margin(), 0);
    EXPECT_THAT(tuning.provenance(), HasSubstr("not measured on this GPU"));
    EXPECT_THAT(tuning.provenance(), HasSubstr(tuning.table->gpu));
  }
}

TEST(Tuning, WithoutClocksCountsSmsAlone) {
  const Tuning tuning = tuning_of(kL4);
  EXPECT_EQ(tuning.time_scale, 1);
  EXPECT_EQ(tuning.bytes_per_us, 1e3 * tuning.table->speed.memory_gb_s);
  EXPECT_EQ(tuning.multiprocessors, 58);
}

TEST(Tuning, TimesFollowClocksSmsAndBandwidth) {
  const auto us = [](const ForwardProblem& p, const DeviceInfo& gpu, const DeviceSpeed& speed) {
    return predicted_us(tuning_of(gpu, speed), p, kUnit);
  };
  // Two units per head: fewer than the SMs of any of these.
  const ForwardProblem few = problem(8, 256), many = problem(64, 2048);
  const double h200 = us(few, kH200, {});
  EXPECT_DOUBLE_EQ(us(few, kA100, {1980, 1e6}), h200);
  EXPECT_DOUBLE_EQ(us(few, kA100, {990, 1e6}), 2 * h200) << "half the clock";
  EXPECT_GT(us(many, kL4, {1980, 1e6}), 1.8 * us(many, kH200, {})) << "less than half the SMs";
  EXPECT_GT(us(few, kL4, {1980, 10}), 1e-4 * bytes_of(few)) << "10 GB/s";
  EXPECT_EQ(predicted_us(tuning_of(kH200), few,
                         WorkUnit{.tile = "none", .block_q = 64, .group_q = 64, .step_keys = 64}),
            INFINITY);
}

TEST(IsMeasured, HoldsForProblemsOfTheGrid) {
  const Tuning h200 = tuning_of(kH200), l4 = tuning_of(kL4, kL4Speed);
  EXPECT_TRUE(is_measured(h200, problem(32, 1024)));
  EXPECT_FALSE(is_measured(h200, problem(64, 1024))) << "16 waves";
  EXPECT_FALSE(is_measured(h200, problem(4, 4096))) << "16 steps, four waves";
  EXPECT_TRUE(is_measured(h200, problem(1, 4096)))
      << "16 steps, but few units: time grows by steps";
  EXPECT_FALSE(is_measured(l4, problem(32, 1024))) << "fewer SMs, more waves";
}

}  // namespace
}  // namespace flashcore::tuning

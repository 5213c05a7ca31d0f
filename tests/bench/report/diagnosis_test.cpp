// The diagnosis of `flashcore profile`, for ncu's output on an H200 and for made-up counters.
#include "bench/report/diagnosis.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace flashcore::bench {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr const char* kTensor = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
constexpr const char* kXu = "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active";
constexpr const char* kDram = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kDuration = "gpu__time_duration.sum";
constexpr const char* kWaves = "launch__waves_per_multiprocessor";

std::string recorded(const std::string& name) {
  std::ifstream file(std::string(FLASHCORE_TEST_DATA) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Diagnosis diagnose_recorded(const std::string& name) {
  const Result<std::vector<KernelCounters>> kernels = parse_profiler_csv(recorded(name));
  EXPECT_TRUE(kernels.ok()) << kernels.status().message();
  EXPECT_EQ(kernels->size(), 1u);
  return diagnose(kernels->front());
}

TEST(Diagnosis, OfARungWithBankConflicts) {
  const Diagnosis d = diagnose_recorded("ncu_04_wmma_pv.txt");
  EXPECT_EQ(d.kernel, "wmma_pv_kernel<64>");
  EXPECT_NEAR(d.microseconds, 1549.6, 1e-9);
  EXPECT_NEAR(d.tensor_percent, 2.01, 1e-9);
  EXPECT_NEAR(d.bank_conflicts, 186919464.0 + 42025675.0, 1e-6);
  EXPECT_NEAR(d.conflicts_percent, 100 * 228945139.0 / 284409712.0, 1e-6);
  EXPECT_EQ(d.bound, Bound::memory);
  EXPECT_EQ(d.memory.front().name, "L1 and shared memory");
  EXPECT_THAT(d.verdict, HasSubstr("memory-bound: L1 and shared memory at 92%"));
  EXPECT_THAT(d.advice.front(), HasSubstr("swizzle or pad"));
}

TEST(Diagnosis, OfTheWgmmaRung) {
  const Diagnosis d = diagnose_recorded("ncu_15_wgmma_tma.txt");
  EXPECT_EQ(d.kernel, "wgmma_tma_kernel<Config<64>>");
  EXPECT_EQ(d.registers, 128);
  EXPECT_NEAR(d.shared_kilobytes, 74, 1e-9);
  EXPECT_THAT(d.occupancy_limiter, HasSubstr("3 blocks per SM"));
  EXPECT_EQ(d.bound, Bound::latency);
  EXPECT_EQ(d.stalls.front().name, "wait");
  EXPECT_EQ(d.stalls[1].name, "long_scoreboard");
  EXPECT_LT(d.conflicts_percent, 1);
  EXPECT_THAT(d.advice, testing::Not(Contains(HasSubstr("swizzle"))));
}

KernelCounters made_up(std::initializer_list<std::pair<const char*, double>> values) {
  KernelCounters counters{.kernel = "k", .values = {{kDuration, 1e6}, {kWaves, 4}}};
  for (const auto& [name, value] : values) counters.values[name] = value;
  return counters;
}

TEST(Diagnosis, NamesTheBusiestUnit) {
  Diagnosis d = diagnose(made_up({{kTensor, 85}, {kDram, 70}}));
  EXPECT_EQ(d.bound, Bound::compute);
  EXPECT_THAT(d.verdict, HasSubstr("Tensor Cores are busy 85%"));
  d = diagnose(made_up({{kTensor, 30}, {kXu, 75}}));
  EXPECT_EQ(d.bound, Bound::compute);
  EXPECT_THAT(d.verdict, HasSubstr("exponentials (XU) at 75%"));
  d = diagnose(made_up({{kTensor, 65}, {kDram, 90}}));
  EXPECT_EQ(d.bound, Bound::memory);
  EXPECT_THAT(d.verdict, HasSubstr("DRAM at 90%"));
}

TEST(Diagnosis, TellsLaunchFromLatency) {
  Diagnosis d = diagnose(made_up({{kDuration, 3000}, {kWaves, 0.2}}));
  EXPECT_EQ(d.bound, Bound::launch);
  EXPECT_THAT(d.advice, Contains(HasSubstr("more blocks")));
  d = diagnose(made_up({{kWaves, 0.2}}));
  EXPECT_EQ(d.bound, Bound::latency);
  EXPECT_THAT(d.verdict, HasSubstr("most of the GPU has no block"));
  d = diagnose(made_up({}));
  EXPECT_EQ(d.bound, Bound::latency);
  EXPECT_THAT(d.advice, testing::Not(Contains(HasSubstr("more blocks"))));
}

TEST(Diagnosis, OneThatReadsAllCountersItAsksFor) {
  KernelCounters counters{.kernel = "k", .values = {}};
  for (const std::string& metric : profiler_metrics()) counters.values[metric] = 1;
  const nlohmann::ordered_json json = diagnosis_json(diagnose(counters));
  EXPECT_EQ(json["stalls"].size(), 14u);
  EXPECT_EQ(json["bound"], "launch");
  EXPECT_EQ(diagnosis_lines(diagnose(counters)).size(), 9u + json["advice"].size());
}

TEST(ProfilerCsv, KeepsLaunchesApartAndSkipsWhatIsNotRead) {
  const std::string text =
      "program output\n"
      "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
      "\"0\",\"void (anonymous namespace)::a_kernel<64>(P, Q)\",\"m\",\"ns\",\"1,234.5\"\n"
      "\"0\",\"void (anonymous namespace)::a_kernel<64>(P, Q)\",\"n\",\"\",\"n/a\"\n"
      "\"1\",\"b \"\"q\"\"\",\"m\",\"ns\",\"7\"\r\n"
      "\"2\",\"cut off\n";
  const Result<std::vector<KernelCounters>> kernels = parse_profiler_csv(text);
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  ASSERT_EQ(kernels->size(), 2u);
  EXPECT_EQ((*kernels)[0].kernel, "a_kernel<64>");
  EXPECT_EQ((*kernels)[0].get("m"), 1234.5);
  EXPECT_EQ((*kernels)[0].values.count("n"), 0u);
  EXPECT_EQ((*kernels)[1].kernel, "b \"q\"");
  EXPECT_EQ((*kernels)[1].get("m"), 7);
}

TEST(ProfilerCsv, SaysWhatIsMissing) {
  EXPECT_THAT(parse_profiler_csv("").status().message(), HasSubstr("has no table"));
  EXPECT_THAT(parse_profiler_csv("==ERROR== no permission\n").status().message(),
              HasSubstr("has no table"));
  EXPECT_THAT(parse_profiler_csv(
                  "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n")
                  .status()
                  .message(),
              HasSubstr("saw no kernel"));
}

}  // namespace
}  // namespace flashcore::bench

// What the ladder's evidence derives from gates and times that it has; no GPU.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/cases/cases.hpp"
#include "cli/ladder_gate.hpp"
#include "cli/ladder_times.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

Json record(const char* name, double p50_us) {
  Json one{{"name", name}, {"times", Json::object()}};
  if (p50_us > 0) one["times"]["small"] = {{"sustained", {{"p50_us", p50_us}}}};
  return one;
}

TEST(LadderRatios, AreToTheTimedRungBeforeAndToTheUnfusedOne) {
  Json records = Json::array({record("00_unfused", 80), record("01_scalar", 160),
                              record("02_failed", 0), record("03_faster", 40)});
  add_ratios({bench::Case{.name = "small"}, bench::Case{.name = "never timed"}}, records);
  const auto ratio = [&](size_t rung, const char* name) {
    return records[rung]["times"]["small"][name];
  };
  EXPECT_TRUE(ratio(0, "speedup_over_before").is_null());
  EXPECT_EQ(ratio(0, "speedup_over_unfused"), 1);
  EXPECT_EQ(ratio(1, "speedup_over_before"), 0.5);
  EXPECT_EQ(ratio(1, "speedup_over_unfused"), 0.5);
  EXPECT_EQ(records[2]["times"], Json::object());
  EXPECT_EQ(ratio(3, "speedup_over_before"), 4);
  EXPECT_EQ(ratio(3, "speedup_over_unfused"), 2);
  EXPECT_EQ(records[3]["times"].size(), 1U);
}

TEST(LadderRatios, WithoutTheUnfusedOneAreToTheOneBeforeAlone) {
  Json records = Json::array({record("01_scalar", 160), record("03_faster", 40)});
  add_ratios({bench::Case{.name = "small"}}, records);
  const Json& time = records[1]["times"]["small"];
  EXPECT_EQ(time["speedup_over_before"], 4);
  EXPECT_TRUE(time["speedup_over_unfused"].is_null());
}

TEST(LadderGate, EvidenceHasTheWorstAndTheFirstFailure) {
  RungGate gate;
  EXPECT_EQ(gate_evidence(gate)["passed"], false) << "nothing was judged";
  gate.rows = {{.shape = "small", .passed = 3, .max_scaled_error = 2e-4, .relative_error = 5e-3},
               {.shape = "small", .causal = true, .passed = 3, .max_scaled_error = 4e-4}};
  gate.tails_passed = 7;
  gate.repeats_equal = 2;
  Json evidence = gate_evidence(gate);
  EXPECT_EQ(evidence["passed"], true);
  EXPECT_EQ(evidence["max_scaled_error"], 4e-4);
  EXPECT_EQ(evidence["relative_error"], 5e-3);
  EXPECT_EQ(evidence["table"].size(), 2U);
  EXPECT_EQ(evidence["table"][1]["causal"], true);
  EXPECT_EQ(evidence["tails"]["passed"], 7);
  EXPECT_EQ(evidence["repeats"]["equal"], 2);
  gate.failure = "f16 small: max scaled error is 0.1, wanted 0.001 at most";
  evidence = gate_evidence(gate);
  EXPECT_EQ(evidence["passed"], false);
  EXPECT_EQ(evidence["failure"], gate.failure);
}

}  // namespace
}  // namespace flashcore::cli

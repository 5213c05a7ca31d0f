// The ladder on the CPU: any kernels and any cases will do.
#include "bench/ladder/ladder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/evidence/evidence_file.hpp"
#include "bench/ladder/ladder_evidence.hpp"
#include "bench/report/tables.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

LadderOptions small_ladder() {
  LadderOptions options;
  options.gated = {square_case("tiny", DType::f16, 1, 2, 24, 64, false)};
  options.timed = {square_case("one", DType::f16, 1, 1, 40, 64, false),
                   square_case("two", DType::f16, 1, 2, 33, 64, true)};
  options.seeds = {0, 1};
  options.tails = 5;
  options.peers = "none";
  return options;
}

std::vector<Rung> two_rungs() {
  return {{.name = "reference",
           .adds = "everything",
           .prediction = "slow",
           .min_compute_capability = 80},
          {.name = "cpu_simd",
           .adds = "SIMD",
           .prediction = "10x",
           .input = DType::f8e4m3,
           .min_compute_capability = 80}};
}

Json climb(const std::vector<Rung>& rungs, const LadderOptions& options) {
  const Result<Json> evidence =
      climb_ladder(rungs, PlanOptions{}, options, [](const std::string&) {});
  EXPECT_TRUE(evidence.ok()) << evidence.status().message();
  return evidence.ok() ? *evidence : Json();
}

TEST(Ladder, GatesAndTimesEveryRungInTheTypeThatItReads) {
  const Json evidence = climb(two_rungs(), small_ladder());
  EXPECT_EQ(evidence["kind"], "ladder");
  EXPECT_EQ(evidence["complete"], true);
  EXPECT_TRUE(ladder_passed(evidence));
  ASSERT_EQ(evidence["rungs"].size(), 2U);
  for (const Json& rung : evidence["rungs"]) {
    const Json& gate = rung["gate"];
    EXPECT_EQ(gate["passed"], true) << gate;
    ASSERT_EQ(gate["table"].size(), 2U);  // full, causal
    EXPECT_EQ(gate["table"][1]["causal"], true);
    EXPECT_EQ(gate["table"][1]["passed"], 2);
    EXPECT_EQ(gate["max_scaled_error"].get<double>(),
              std::max(gate["table"][0]["max_scaled_error"].get<double>(),
                       gate["table"][1]["max_scaled_error"].get<double>()));
    EXPECT_EQ(gate["repeats"]["equal"], 4);
    EXPECT_EQ(gate["repeats"]["different"], 0);
    EXPECT_EQ(gate["tails"]["passed"], 5) << gate["tails"];
    EXPECT_GT(rung["times"]["two"]["wall"]["p50_us"], 0);
    EXPECT_EQ(rung["launches"]["two"], Json::array());
    EXPECT_NE(rung["fingerprint"], "");
  }
  EXPECT_EQ(evidence["rungs"][1]["input"], "f8e4m3");
  EXPECT_EQ(evidence["rungs"][1]["prediction"], "10x");
  const Json& first = evidence["rungs"][0]["times"]["one"]["wall"]["p50_us"];
  const Json& second = evidence["rungs"][1]["times"]["one"];
  EXPECT_DOUBLE_EQ(second["speedup_over_before"],
                   first.get<double>() / second["wall"]["p50_us"].get<double>());
  EXPECT_EQ(evidence["shapes"].size(), 2U);
  EXPECT_GT(evidence["ceilings"]["wall"]["matrix_product"]["f16"]["tflops"], 0);
  EXPECT_TRUE(evidence["peers"].is_null());
  EXPECT_EQ(ladder_gates(evidence).lines().size(), 3U);
  EXPECT_THAT(ladder_times(evidence).lines(), Contains(StartsWith("cpu_simd")));
}

// Turns it into a GPU's evidence: its protocol is "sustained", which the schema and the pages want.
Json as_of_gpu(Json evidence) {
  const auto rename = [](Json& times) {
    if (!times.contains("wall")) return;
    times["sustained"] = times["wall"];
    times.erase("wall");
  };
  for (Json& rung : evidence["rungs"]) {
    for (auto& [shape, times] : rung["times"].items()) rename(times);
  }
  if (evidence["peers"].is_null()) return evidence;
  for (auto& [shape, rows] : evidence["peers"]["shapes"].items()) {
    for (Json& row : rows) rename(row);
  }
  return evidence;
}

TEST(Ladder, HasThePeersOfEveryShapeInEvidenceThatFitsTheSchema) {
  LadderOptions options = small_ladder();
  options.peers = FLASHCORE_PEERS;
  options.all_rungs = false;
  const Json evidence = as_of_gpu(climb(two_rungs(), options));
  ASSERT_TRUE(evidence["peers"].is_object()) << evidence["notes"];
  EXPECT_EQ(evidence["peers"]["plain"], "1");
  ASSERT_EQ(evidence["peers"]["shapes"].size(), 2U) << evidence["notes"];
  for (const auto& [shape, rows] : evidence["peers"]["shapes"].items()) {
    ASSERT_EQ(rows.size(), 1U) << shape;  // the fp16 rung's case: no peer has fp8 with scales
    EXPECT_EQ(rows[0]["backend"], "plain");
    EXPECT_EQ(rows[0]["passed"], true) << rows[0];
    EXPECT_GT(rows[0]["max_scaled_error"], 0);
    EXPECT_DOUBLE_EQ(rows[0]["sustained"]["p50_us"], 3000);
  }
  EXPECT_TRUE(ladder_passed(evidence));
  EXPECT_EQ(evidence["complete"], false);  // the ladder is incomplete
  const Status status = check_evidence(evidence);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Ladder, WithoutPeersThatCanBeStartedSaysSoAndIsComplete) {
  LadderOptions options = small_ladder();
  options.peers = "/no-such-folder/peers.py";
  options.tails = 0;
  const Json evidence = climb(two_rungs(), options);
  EXPECT_EQ(evidence["complete"], true);
  EXPECT_TRUE(evidence["peers"].is_null());
  EXPECT_THAT(evidence["notes"].dump(), HasSubstr("no peers: "));
}

TEST(Ladder, WithoutTimesHasTheShapesAndIsNotComplete) {
  LadderOptions options = small_ladder();
  options.times = false;
  const Json evidence = climb(two_rungs(), options);
  EXPECT_EQ(evidence["complete"], false);
  EXPECT_EQ(evidence["shapes"].size(), 2U);
  EXPECT_TRUE(evidence["rungs"][0]["times"].empty());
  EXPECT_TRUE(ladder_passed(evidence));
  EXPECT_TRUE(check_evidence(evidence).ok());
}

TEST(Ladder, ARungThatFailsATailIsNotTimedAndNamesTheProblem) {
  LadderOptions options = small_ladder();
  options.tails = 40;
  // fp16 scores round twice in the naive kernel: too much for some of them.
  const Json evidence = climb({{.name = "naive", .adds = "", .prediction = ""}}, options);
  const Json& rung = evidence["rungs"][0];
  const Json& gate = rung["gate"];
  EXPECT_EQ(gate["passed"], false);
  EXPECT_EQ(gate["table"][0]["failed"], 0);
  EXPECT_GT(gate["tails"]["failed"], 0);
  EXPECT_THAT(gate["failure"].get<std::string>(), StartsWith("tail seed "));
  EXPECT_THAT(gate["failure"].get<std::string>(), HasSubstr("(q f16["));
  EXPECT_TRUE(rung["times"].empty());
  EXPECT_FALSE(ladder_passed(evidence));
  EXPECT_THAT(ladder_failures(evidence), Contains(StartsWith("failed: naive: tail seed ")));
}

TEST(Ladder, ARungThatRefusesAGateFailsIt) {
  // naive does not support fp8.
  const Json evidence = climb(
      {{.name = "naive", .adds = "", .prediction = "", .input = DType::f8e4m3}}, small_ladder());
  const Json& gate = evidence["rungs"][0]["gate"];
  EXPECT_EQ(gate["passed"], false);
  EXPECT_EQ(gate["table"][0]["failed"], 2);
  EXPECT_NE(gate["failure"], "");
}

TEST(Ladder, WritesItsEvidenceAndRefusesAPathThatCannotBeWritten) {
  LadderOptions options = small_ladder();
  options.out = "/no-such-folder/ladder.json";
  const Result<Json> evidence =
      climb_ladder(two_rungs(), PlanOptions{}, options, [](const std::string&) {});
  EXPECT_THAT(evidence.status().message(), HasSubstr("/no-such-folder"));
}

Json record(const char* name, double p50_us) {
  Json one{{"name", name}, {"times", Json::object()}};
  if (p50_us > 0) one["times"]["small"] = {{"sustained", {{"p50_us", p50_us}}}};
  return one;
}

Json evidence_of(const Json& rungs) {
  return {{"protocols", {{"sustained", "..."}, {"idle", "..."}}},
          {"shapes", {{{"name", "small"}}, {{"name", "never timed"}}}},
          {"rungs", rungs}};
}

TEST(LadderRatios, AreToTheTimedRungBeforeAndToTheUnfusedOne) {
  Json evidence = evidence_of({record("00_unfused", 80), record("01_scalar", 160),
                               record("02_failed", 0), record("03_faster", 40)});
  add_ratios(evidence);
  const auto ratio = [&](size_t rung, const char* name) {
    return evidence["rungs"][rung]["times"]["small"][name];
  };
  EXPECT_TRUE(ratio(0, "speedup_over_before").is_null());
  EXPECT_EQ(ratio(0, "speedup_over_unfused"), 1);
  EXPECT_EQ(ratio(1, "speedup_over_before"), 0.5);
  EXPECT_EQ(ratio(1, "speedup_over_unfused"), 0.5);
  EXPECT_EQ(evidence["rungs"][2]["times"], Json::object());
  EXPECT_EQ(ratio(3, "speedup_over_before"), 4);
  EXPECT_EQ(ratio(3, "speedup_over_unfused"), 2);
  EXPECT_EQ(evidence["rungs"][3]["times"].size(), 1U);
}

TEST(LadderCase, GivesARungItsTimesOrTheReasonThatThereAreNone) {
  Json evidence = evidence_of({record("00_unfused", 0), record("01_fails", 0), record("02_ends", 0),
                               record("03_refuses", 0)});
  const Json passed{{"passed", true}, {"failure", ""}};
  const Json times{{"sustained", {{"p50_us", 5}}}};
  const Json nothing = Json::object();
  add_case(evidence, {{"name", "small"},
                      {"rows",
                       {{{"implementation", "00_unfused"},
                         {"source", "flashcore"},
                         {"gate", passed},
                         {"times", times},
                         {"launches", Json::array()},
                         {"host_us", 3}},
                        {{"implementation", "01_fails"},
                         {"source", "flashcore"},
                         {"gate", {{"passed", false}, {"failure", "o: is NaN"}}},
                         {"times", nothing}},
                        {{"implementation", "02_ends"},
                         {"source", "flashcore"},
                         {"gate", passed},
                         {"times", nothing},
                         {"error", "the device failed"}},
                        {{"implementation", "03_refuses"},
                         {"source", "flashcore"},
                         {"gate", nullptr},
                         {"times", nothing},
                         {"refusal", "too long"}},
                        {{"implementation", "flash"},
                         {"source", "peer"},
                         {"gate", nullptr},
                         {"times", nothing},
                         {"error", "is not here"}}}}});
  const Json& rungs = evidence["rungs"];
  EXPECT_EQ(rungs[0]["times"]["small"]["sustained"]["p50_us"], 5);
  EXPECT_EQ(rungs[0]["times"]["small"]["speedup_over_unfused"], 1);
  EXPECT_EQ(rungs[0]["host_us"], 3);
  EXPECT_FALSE(rungs[0].contains("error"));
  EXPECT_EQ(rungs[1]["error"], "small: o: is NaN");
  EXPECT_EQ(rungs[2]["error"], "small: the device failed");
  EXPECT_EQ(rungs[3]["error"], "small: too long");
  for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(rungs[i]["times"].empty());
  const Json& peer = evidence["peers"]["shapes"]["small"][0];
  EXPECT_EQ(peer["backend"], "flash");
  EXPECT_EQ(peer["passed"], false);
  EXPECT_EQ(peer["error"], "is not here");
}

TEST(LadderRatios, WithoutTheUnfusedOneAreToTheOneBeforeAlone) {
  Json evidence = evidence_of({record("01_scalar", 160), record("03_faster", 40)});
  add_ratios(evidence);
  const Json& time = evidence["rungs"][1]["times"]["small"];
  EXPECT_EQ(time["speedup_over_before"], 4);
  EXPECT_TRUE(time["speedup_over_unfused"].is_null());
}

}  // namespace
}  // namespace flashcore::bench

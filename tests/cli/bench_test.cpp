// flashcore bench and compare from the outside: cases from files, peers, evidence, resuming.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/evidence/evidence_file.hpp"
#include "bench/report/comparison.hpp"
#include "tests/cli/process.hpp"
#include "tests/cli/scratch.hpp"

namespace flashcore::tests {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

Outcome flashcore_command(Words words, Words environment = {}) {
  words.insert(words.begin(), FLASHCORE_COMMAND);
  return run_process(std::move(words), std::move(environment));
}

const char* const kCases = R"({"schema": "flashcore-cases", "version": 1, "cases": [
  {"name": "one", "dtype": "f32", "batch": 1, "heads_q": 4, "heads_kv": 2, "seqlen_q": 5,
   "seqlen_kv": 9, "head_dim": 8, "causal": true, "suite": "sweep"},
  {"name": "two", "dtype": "f32", "batch": 2, "heads_q": 1, "seqlen_q": 3, "head_dim": 8}]})";

Words bench(const Scratch& scratch, Words more = {}) {
  Words words = {"bench",    "--cases", scratch.write("cases.json", kCases),
                 "--device", "cpu",     "--threads",
                 "1",        "--out",   scratch.path("out.json")};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

ordered_json evidence_of(const Scratch& scratch, const std::string& name = "out.json") {
  const Result<ordered_json> evidence = bench::read_evidence(scratch.path(name));
  EXPECT_TRUE(evidence.ok()) << evidence.status().message();
  return evidence.ok() ? *evidence : ordered_json::object();
}

TEST(BenchCases, WritesEvidenceThatItsSchemaHolds) {
  const Scratch scratch;
  const Outcome outcome = flashcore_command(bench(scratch, {"--verbose"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("cpu_simd"), HasSubstr("passed")));
  EXPECT_THAT(outcome.err, HasSubstr("begins one, cpu_simd, gate"));
  const ordered_json evidence = evidence_of(scratch);
  EXPECT_EQ(evidence["complete"], true);
  ASSERT_EQ(evidence["cases"].size(), 2U);
  const ordered_json& one = evidence["cases"][0];
  EXPECT_EQ(one["name"], "one");
  EXPECT_EQ(one["suite"], "sweep");
  EXPECT_EQ(evidence["cases"][1]["suite"], "file");
  EXPECT_EQ(one["heads_kv"], 2);
  EXPECT_EQ(one["judged"], "all rows");
  const ordered_json& row = one["rows"][0];
  EXPECT_EQ(row["source"], "flashcore");
  EXPECT_THAT(row["fingerprint"], testing::MatchesRegex("source [0-9a-f]+"));
  EXPECT_EQ(row["gate"]["passed"], true);
  EXPECT_EQ(row["times"]["wall"]["rounds_us"].size(), 2U);
  EXPECT_EQ(row["default"], true);
  EXPECT_GT(row["workspace_bytes"], 0);
  EXPECT_FALSE(evidence["protocols"].contains("processor")) << "by name only";
  EXPECT_GT(evidence["ceilings"]["wall"]["matrix_product"]["f32"]["tflops"], 0);
  // A case takes one line, and its numbers are short.
  EXPECT_THAT(scratch.read("out.json"), HasSubstr("\n[\"#0\",\"one\",\"sweep\","));
  EXPECT_LE(row["times"]["wall"]["p50_us"].dump().size(), 9U);
}

TEST(BenchCases, ProcessorTimeIsTheThreadsShare) {
  const Scratch scratch;
  EXPECT_EQ(flashcore_command(bench(scratch, {"--protocol", "wall,processor"})).exit_code, 0);
  const ordered_json evidence = evidence_of(scratch);
  for (const ordered_json& one : evidence["cases"]) {
    const ordered_json& times = one["rows"][0]["times"];
    EXPECT_GT(times["processor"]["p50_us"], 0);
    EXPECT_LT(times["processor"]["p50_us"].get<double>(),
              3 * times["wall"]["p50_us"].get<double>());
  }
}

TEST(BenchCases, OnlyTheChoiceIsTheDefault) {
  const Scratch scratch;
  EXPECT_EQ(flashcore_command(bench(scratch, {"--only", "reference,cpu_simd"})).exit_code, 0);
  const ordered_json rows = evidence_of(scratch)["cases"][0]["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_FALSE(rows[0].contains("default")) << rows[0];
  EXPECT_EQ(rows[1]["default"], true);
}

TEST(BenchCases, TheHelperIsNotAskedForFp8) {
  const Scratch scratch;
  const auto one = [](const std::string& name, const std::string& output) {
    return R"({"name": ")" + name + R"(", "dtype": "f8e4m3", )" + output + R"("batch": 1,
               "heads_q": 2, "seqlen_q": 40, "head_dim": 16})";
  };
  const std::string cases = scratch.write(
      "fp8.json", R"({"schema": "flashcore-cases", "version": 1, "cases": [)" + one("O f16", "") +
                      "," + one("O e4m3", R"("o_dtype": "f8e4m3", )") + "]}");
  const Outcome outcome = flashcore_command({"bench", "--cases", cases, "--device", "cpu",
                                             "--threads", "2", "--out", scratch.path("out.json"),
                                             "--peers", FLASHCORE_PEERS, "--backends", "plain"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const ordered_json evidence = evidence_of(scratch);
  EXPECT_EQ(evidence["peers"]["plain"], "1");
  EXPECT_TRUE(evidence["notes"].empty()) << evidence["notes"];
  ASSERT_EQ(evidence["cases"].size(), 2U);
  for (const ordered_json& item : evidence["cases"]) {
    ASSERT_EQ(item["rows"].size(), 1U) << item;
    EXPECT_EQ(item["rows"][0]["gate"]["passed"], true) << item;
  }
}

TEST(BenchCases, FeaturesPassTheirGatesOnSampledRowsAndPeersAreAskedForTheirs) {
  const Scratch scratch;
  const auto one = [](const std::string& name, const std::string& feature) {
    return R"({"name": ")" + name + R"(", "dtype": "f32", "batch": 2, "heads_q": 4, "heads_kv": 2,
               "seqlen_q": 400, "head_dim": 16, )" +
           feature + "}";
  };
  const std::string cases = scratch.write(
      "features.json",
      R"({"schema": "flashcore-cases", "version": 1, "cases": [)" +
          one("softcap", R"("softcap": 2)") + "," + one("window", R"("window": [30, 5])") + "," +
          one("bias", R"("bias": "f16", "causal": true)") + "," + one("mask", R"("mask": true)") +
          "," + one("ALiBi", R"("alibi": true)") + "," + one("amax", R"("largest": true)") + "," +
          one("fp8 O", R"("largest": true, "o_dtype": "f8e4m3")") + "," +
          one("dropout", R"("dropout": 0.4)") + "]}");
  const Outcome outcome =
      flashcore_command({"bench", "--cases", cases, "--device", "cpu", "--threads", "2", "--out",
                         scratch.path("out.json"), "--peers", FLASHCORE_PEERS});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const ordered_json evidence = evidence_of(scratch);
  ASSERT_EQ(evidence["cases"].size(), 8U);
  for (const ordered_json& item : evidence["cases"]) {
    const bool asked = item["name"] == "bias" || item["name"] == "mask" || item["name"] == "ALiBi";
    ASSERT_EQ(item["rows"].size(), asked ? 2U : 1U) << item["name"];
    EXPECT_EQ(item["rows"][0]["gate"]["passed"], true) << item;
    EXPECT_EQ(item["judged"], item["name"] == "dropout" ? "64 of 3200 rows" : "1024 of 3200 rows");
    EXPECT_FALSE(item["features"].get<std::string>().empty());
  }
}

TEST(BenchCases, RefusesWhatIsNoListOfCases) {
  const Scratch scratch;
  const auto refusal = [&](const std::string& text) {
    const Outcome outcome =
        flashcore_command({"bench", "--cases", scratch.write("bad.json", text)});
    EXPECT_EQ(outcome.exit_code, 2) << text;
    EXPECT_THAT(outcome.err, StartsWith("flashcore: error: "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  };
  const auto with = [](const std::string& item) {
    return R"({"schema": "flashcore-cases", "version": 1, "cases": [)" + item + "]}";
  };
  EXPECT_THAT(refusal("{"), HasSubstr("is not JSON, or was cut off"));
  EXPECT_THAT(refusal("[]"), HasSubstr("is a list, wanted object"));
  EXPECT_THAT(refusal(R"({"schema": "other", "version": 1, "cases": []})"),
              HasSubstr("schema: is \"other\", wanted \"flashcore-cases\""));
  EXPECT_THAT(refusal(with(R"({"name": "a"})")), HasSubstr("cases[0]: has no 'dtype'"));
  EXPECT_THAT(refusal(with("")), HasSubstr("cases: has 0 items, wanted at least 1"));
  const std::string good =
      R"({"name": "a", "dtype": "f16", "batch": 1, "heads_q": 1, "seqlen_q": 4, "head_dim": )";
  EXPECT_THAT(refusal(with(good + "0}")), HasSubstr("cases[0].head_dim: is 0, wanted 1 or more"));
  EXPECT_THAT(refusal(with(good + "1e300}")), HasSubstr("wanted integer"));
  EXPECT_THAT(refusal(with(good + "18446744073709551615}")), HasSubstr("or less"));
  EXPECT_THAT(refusal(with(good + "8}," + good + "8}")), HasSubstr("two cases named 'a'"));
  EXPECT_THAT(
      refusal(with(good + R"(8, "caucal": true})")),
      HasSubstr("cases[0]: has 'caucal', wanted a key that is known; the nearest is 'causal'"));
  EXPECT_THAT(refusal(with(good + R"(8, "window": [3]})")), HasSubstr("has a window of 1 numbers"));
  EXPECT_THAT(refusal(with(good + R"(8, "dropout": 2})")), HasSubstr("dropout: is 2"));
  EXPECT_THAT(refusal(std::string(100, '[') + std::string(100, ']')), HasSubstr("levels"));
  const Outcome absent = flashcore_command({"bench", "--cases", scratch.path("absent.json")});
  EXPECT_EQ(absent.exit_code, 2);
  const Outcome twice = flashcore_command({"bench", "--suite", "five,small,five"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--suite: has 'five' twice, wanted each once"));
  for (const Words& other :
       {Words{"--cases", scratch.write("cases.json", kCases), "--shape", "1,1,8,8"},
        Words{"--quick", "--shape", "1,1,8,8"}, Words{"--suite", ","}}) {
    Words words = {"bench"};
    words.insert(words.end(), other.begin(), other.end());
    EXPECT_EQ(flashcore_command(words).exit_code, 2) << other.front();
  }
}

const ordered_json& row_of(const ordered_json& one, const std::string& name) {
  for (const ordered_json& row : one["rows"]) {
    if (row["implementation"] == name) return row;
  }
  throw std::runtime_error("no row of " + name);
}

// Every row of a peer, over all cases.
std::vector<ordered_json> peer_rows(const ordered_json& evidence) {
  std::vector<ordered_json> rows;
  for (const ordered_json& one : evidence["cases"]) {
    for (const ordered_json& row : one["rows"]) {
      if (row["source"] == "peer") rows.push_back(row);
    }
  }
  return rows;
}

ordered_json with_peer(const Scratch& scratch, const std::string& fault) {
  const Outcome outcome = flashcore_command(
      bench(scratch, {"--peers", FLASHCORE_PEERS, "--backends", "plain"}), {"PEER_FAULT=" + fault});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return evidence_of(scratch);
}

TEST(BenchPeers, ComputeTheSameNumbersAndAreTimedInTurns) {
  const Scratch scratch;
  const ordered_json evidence = with_peer(scratch, "");
  EXPECT_EQ(evidence["peers"]["plain"], "1");
  const std::vector<ordered_json> rows = peer_rows(evidence);
  ASSERT_EQ(rows.size(), 2U);
  for (const ordered_json& row : rows) {
    EXPECT_EQ(row["gate"]["passed"], true) << row;
    EXPECT_LT(row["gate"]["max_scaled_error"], 1e-6);
    EXPECT_EQ(row["times"]["wall"]["samples"], 6);  // three per round
    EXPECT_DOUBLE_EQ(row["times"]["wall"]["p50_us"], 3000);
    EXPECT_EQ(row["times"]["wall"]["calls_per_sample"], 7);
  }
  EXPECT_EQ(evidence["cases"][0]["rows"][0]["times"]["wall"]["fastest_peer"], "plain");
}

// This machine may lack these libraries; then the evidence says so.
TEST(BenchPeers, OfThisProcessPassTheSameGate) {
  const Scratch scratch;
  const std::string cases = scratch.write("square.json", R"({"schema": "flashcore-cases",
    "version": 1, "cases": [
      {"name": "full", "dtype": "f32", "batch": 2, "heads_q": 3, "seqlen_q": 40, "head_dim": 16},
      {"name": "causal", "dtype": "f32", "batch": 1, "heads_q": 2, "seqlen_q": 24, "seqlen_kv": 40,
       "head_dim": 16, "causal": true},
      {"name": "half", "dtype": "f16", "batch": 1, "heads_q": 2, "seqlen_q": 24, "head_dim": 16},
      {"name": "grouped", "dtype": "f32", "batch": 2, "heads_q": 6, "heads_kv": 2, "seqlen_q": 1,
       "seqlen_kv": 50, "head_dim": 16}]})");
  const Outcome outcome =
      flashcore_command({"bench", "--cases", cases, "--device", "cpu", "--threads", "2", "--out",
                         scratch.path("out.json"), "--peers", FLASHCORE_PEERS, "--backends",
                         "openblas,openblas_by_operator,onednn"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const ordered_json evidence = evidence_of(scratch);
  for (const char* const name : {"openblas", "openblas_by_operator", "onednn"}) {
    if (evidence["peers"].contains(name)) {
      for (const ordered_json& one : evidence["cases"]) {
        const ordered_json& row = row_of(one, name);
        if (one["name"] == "half") {
          EXPECT_THAT(row["refusal"].get<std::string>(), HasSubstr("f32")) << row;
          EXPECT_TRUE(row["times"].empty());
          continue;
        }
        EXPECT_EQ(row["gate"]["passed"], true) << one["name"] << row;
        EXPECT_FALSE(row["times"].empty()) << one["name"] << row;
      }
    } else {
      EXPECT_FALSE(evidence["peers"]["missing"][name].get<std::string>().empty()) << name;
    }
  }
}

TEST(BenchPeers, ThatAreWrongHaveNoTime) {
  const Scratch scratch;
  for (const ordered_json& row : peer_rows(with_peer(scratch, "wrong"))) {
    EXPECT_EQ(row["gate"]["passed"], false);
    EXPECT_NEAR(row["gate"]["max_error"].get<double>(), 1, 1e-5);
    EXPECT_TRUE(row["times"].empty());
  }
}

TEST(BenchPeers, ThatMisbehaveCostOnlyThemselves) {
  const Scratch scratch;
  for (const char* const fault : {"refuses", "short", "escapes", "times"}) {
    const std::vector<ordered_json> rows = peer_rows(with_peer(scratch, fault));
    ASSERT_EQ(rows.size(), 2U) << fault;
    EXPECT_FALSE(rows[0]["error"].get<std::string>().empty()) << fault;
    EXPECT_TRUE(rows[0]["times"].empty()) << fault;
  }
  for (const char* const fault : {"silent", "garbage", "ends"}) {
    const ordered_json evidence = with_peer(scratch, fault);
    EXPECT_TRUE(peer_rows(evidence).empty()) << fault;
    ASSERT_FALSE(evidence["notes"].empty()) << fault;
    EXPECT_THAT(evidence["notes"][0].get<std::string>(), HasSubstr("peers")) << fault;
    EXPECT_FALSE(evidence["cases"][1]["rows"][0]["times"].empty());
  }
}

TEST(BenchResume, KeepsWhatIsThereAndMeasuresTheRest) {
  const Scratch scratch;
  ASSERT_EQ(flashcore_command(bench(scratch)).exit_code, 0);
  ordered_json evidence = evidence_of(scratch);
  evidence["cases"][0]["rows"][0]["times"]["wall"]["p50_us"] = 123456.0;
  evidence["cases"].erase(1);
  evidence["complete"] = false;
  evidence["notes"] = {"not every case was measured: --seconds ran out", "ended early: tired",
                       "kept"};
  scratch.write("out.json", evidence.dump());
  ASSERT_EQ(flashcore_command(bench(scratch, {"--resume"})).exit_code, 0);
  const ordered_json after = evidence_of(scratch);
  ASSERT_EQ(after["cases"].size(), 2U);
  EXPECT_EQ(after["cases"][0]["rows"][0]["times"]["wall"]["p50_us"], 123456.0);
  EXPECT_EQ(after["complete"], true);
  ASSERT_EQ(after["notes"].size(), 2U) << "how the earlier run ended is no longer true";
  EXPECT_EQ(after["notes"][0], "kept");
  EXPECT_THAT(after["notes"][1].get<std::string>(), HasSubstr("resumed"));

  // Other sources: measured again.
  evidence["cases"][0]["rows"][0]["fingerprint"] = "0000000000000000";
  scratch.write("out.json", evidence.dump());
  ASSERT_EQ(flashcore_command(bench(scratch, {"--resume"})).exit_code, 0);
  EXPECT_NE(evidence_of(scratch)["cases"][0]["rows"][0]["times"]["wall"]["p50_us"], 123456.0);

  // Another device: refused, and the file is unchanged.
  evidence["device"]["name"] = "another";
  const std::string text = evidence.dump();
  scratch.write("out.json", text);
  const Outcome other = flashcore_command(bench(scratch, {"--resume"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("was written with another device"));
  EXPECT_EQ(scratch.read("out.json"), text);
  EXPECT_EQ(flashcore_command({"bench", "--resume"}).exit_code, 2);
}

TEST(BenchLimits, NoCaseBeginsAfterTheTimeIsUp) {
  const Scratch scratch;
  ASSERT_EQ(flashcore_command(bench(scratch, {"--seconds", "0.001"})).exit_code, 0);
  const ordered_json evidence = evidence_of(scratch);
  EXPECT_EQ(evidence["complete"], false);
  EXPECT_TRUE(evidence["cases"].empty());
  EXPECT_THAT(evidence["notes"].dump(), HasSubstr("--seconds"));
}

TEST(BenchLimits, OnlyTheKernelsThatAreNamed) {
  const Scratch scratch;
  ASSERT_EQ(flashcore_command(bench(scratch, {"--only", "reference"})).exit_code, 0);
  const ordered_json evidence = evidence_of(scratch);
  ASSERT_FALSE(evidence["cases"].empty());
  for (const ordered_json& one : evidence["cases"]) {
    ASSERT_EQ(one["rows"].size(), 1);
    EXPECT_EQ(one["rows"][0]["implementation"], "reference");
  }
  const Outcome other = flashcore_command(bench(scratch, {"--only", "reference,other"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--only: is 'reference,other', wanted kernels"));
}

// Replaces the worker process; hangs or crashes at a step.
Words hanging_at(const Scratch& scratch, const std::string& step, const std::string& how = "hang") {
  return {"FLASHCORE_COMMAND=" FLASHCORE_COMMAND, "HANG_AT=" + step, "HANG_HOW=" + how,
          "HANG_PIDS=" + scratch.path("pids")};
}

Words watched(const Scratch& scratch, Words more = {}) {
  more.insert(more.end(), {"--worker-program", FLASHCORE_HANGING_WORKER});
  return bench(scratch, std::move(more));
}

TEST(BenchWatch, AKernelThatHangsCostsOnlyItsOwnRow) {
  const Scratch scratch;
  const Outcome outcome = flashcore_command(
      watched(scratch, {"--deadline", "0.5", "--peers", FLASHCORE_PEERS, "--backends", "plain"}),
      hanging_at(scratch, "two, cpu_simd, wall"));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("lost two, cpu_simd, wall: was abandoned after 5 s"));
  const ordered_json evidence = evidence_of(scratch);
  EXPECT_EQ(evidence["complete"], true);
  ASSERT_EQ(evidence["cases"].size(), 2U);
  EXPECT_FALSE(row_of(evidence["cases"][0], "cpu_simd")["times"].empty());
  const ordered_json& lost = row_of(evidence["cases"][1], "cpu_simd");
  EXPECT_EQ(lost["error"], "two, cpu_simd, wall: was abandoned after 5 s");
  EXPECT_TRUE(lost["times"].empty());
  EXPECT_FALSE(row_of(evidence["cases"][1], "plain")["times"].empty());
  // No process is left, including its children.
  std::istringstream pids(scratch.read("pids"));
  int count = 0;
  for (pid_t pid = 0; pids >> pid; ++count) {
    for (int i = 0; i < 100 && ::kill(pid, 0) == 0; ++i) ::usleep(20000);
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string words;
    std::getline(stat, words);
    EXPECT_THAT(words, ::testing::AnyOf("", HasSubstr(") Z "))) << "still there: " << pid;
  }
  EXPECT_EQ(count, 2);
}

TEST(BenchWatch, AProcessThatFallsIsGoneOnFrom) {
  const Scratch scratch;
  const Outcome outcome =
      flashcore_command(watched(scratch), hanging_at(scratch, "one, cpu_simd, gate", "fall"));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const ordered_json evidence = evidence_of(scratch);
  ASSERT_EQ(evidence["cases"].size(), 2U);
  EXPECT_EQ(row_of(evidence["cases"][0], "cpu_simd")["error"],
            "one, cpu_simd, gate: its process was ended by signal 11 (Segmentation fault)");
  EXPECT_FALSE(row_of(evidence["cases"][1], "cpu_simd")["times"].empty());
  EXPECT_TRUE(evidence["notes"].empty()) << evidence["notes"];
}

TEST(BenchWatch, WhatNoImplementationDidEndsTheRun) {
  const Scratch scratch;
  const Outcome outcome =
      flashcore_command(watched(scratch), hanging_at(scratch, "two, inputs and reference", "fall"));
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  const ordered_json evidence = evidence_of(scratch);
  EXPECT_EQ(evidence["complete"], false);
  EXPECT_EQ(evidence["cases"].size(), 1U);
  EXPECT_THAT(evidence["notes"].dump(), HasSubstr("ended early: two, inputs and reference"));
}

TEST(BenchWatch, AnInterruptionKeepsWhatIsMeasuredAndResumeGoesOn) {
  const Scratch scratch;
  Words words = watched(scratch);
  words.insert(words.begin(), FLASHCORE_COMMAND);
  Process process(words, hanging_at(scratch, "two, cpu_simd, wall"));
  for (int i = 0; i < 500 && scratch.read("pids").empty(); ++i) ::usleep(20000);
  ASSERT_FALSE(scratch.read("pids").empty());
  process.send(SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  ordered_json evidence = evidence_of(scratch);
  EXPECT_EQ(evidence["complete"], false);
  ASSERT_EQ(evidence["cases"].size(), 1U);
  EXPECT_THAT(evidence["notes"].dump(), HasSubstr("interrupted"));
  const ordered_json kept = evidence["cases"][0];
  ASSERT_EQ(flashcore_command(bench(scratch, {"--resume"})).exit_code, 0);
  evidence = evidence_of(scratch);
  EXPECT_EQ(evidence["complete"], true);
  ASSERT_EQ(evidence["cases"].size(), 2U);
  EXPECT_EQ(evidence["cases"][0], kept);
}

TEST(BenchWatch, WithoutADeadlineTheWorkIsDoneInOneProcess) {
  const Scratch scratch;
  const Outcome outcome =
      flashcore_command(watched(scratch, {"--deadline", "0"}), hanging_at(scratch, "anything"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(evidence_of(scratch)["cases"].size(), 2U);
  EXPECT_TRUE(scratch.read("pids").empty());
}

// Evidence with one of our points and one peer's, with given times.
std::string fixture(double ours_us, double p90_us, double peer_us, bool passed = true) {
  const auto time = [](double p50, double p90) {
    return ordered_json{{"p50_us", p50}, {"p90_us", p90}, {"samples", 20}};
  };
  const auto row = [&](const char* name, const char* source, double p50, double p90, bool timed) {
    ordered_json times = ordered_json::object();
    if (timed) times["sustained"] = time(p50, p90);
    return ordered_json{{"implementation", name},
                        {"source", source},
                        {"fingerprint", ""},
                        {"gate", nullptr},
                        {"times", times}};
  };
  ordered_json one = {{"name", "a"},     {"suite", "five"}, {"dtype", "f16"}, {"batch", 1},
                      {"heads_q", 1},    {"heads_kv", 1},   {"seqlen_q", 1},  {"seqlen_kv", 1},
                      {"head_dim", 64},  {"causal", false}, {"flop", 1.0},    {"bytes", 1.0},
                      {"judged", "rows"}};
  one["rows"] = {row("ours", "flashcore", ours_us, p90_us, passed),
                 row("theirs", "peer", peer_us, peer_us, true)};
  const ordered_json evidence = {
      {"schema", "flashcore-evidence"},
      {"version", 1},
      {"kind", "bench"},
      {"complete", true},
      {"created", "2000-01-01T00:00:00Z"},
      {"library", {{"version", "0"}, {"commit", ""}, {"modified", false}, {"compiler", ""}}},
      {"host", {{"processor", "fixture"}, {"threads", 1}}},
      {"device", {{"name", "fixture"}}},
      {"protocols", {{"sustained", "fixture"}}},
      {"notes", ordered_json::array()},
      {"ceilings", ordered_json::object()},
      {"peers", nullptr},
      {"cases", {one}}};
  return evidence.dump();
}

Outcome compare(const std::string& before, const std::string& after, Words more = {}) {
  const Scratch scratch;
  Words words = {"compare", scratch.write("a.json", before), scratch.write("b.json", after),
                 "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return flashcore_command(words);
}

TEST(Compare, FindsWhatChangedPastThresholdAndNoise) {
  const auto change = [](const std::string& after, int exit_code, Words more = {}) {
    const Outcome outcome = compare(fixture(10, 10.1, 20), after, std::move(more));
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return ordered_json::parse(outcome.out)["points"][0]["change"].get<std::string>();
  };
  EXPECT_EQ(change(fixture(10, 10.1, 20), 0), "same");
  EXPECT_EQ(change(fixture(10.2, 10.3, 20), 0), "same");  // below 3%
  EXPECT_EQ(change(fixture(10.5, 10.6, 20), 1), "slower");
  EXPECT_EQ(change(fixture(10.5, 10.6, 20), 0, {"--threshold", "6"}), "same");
  EXPECT_EQ(change(fixture(10.5, 20, 20), 0), "same");  // as far off as its noise
  EXPECT_EQ(change(fixture(9, 9.1, 20), 0), "faster");
  EXPECT_EQ(change(fixture(10, 10.1, 20, false), 1), "lost its time");
}

// A case of the same name in two suites has its own times in each.
TEST(Compare, FindsARegressionInEachOfTwoSuites) {
  ordered_json before = ordered_json::parse(fixture(10, 10.1, 20));
  before["cases"].push_back(before["cases"][0]);
  before["cases"][1]["suite"] = "small";
  for (const size_t slower : {0, 1}) {
    ordered_json after = before;
    after["cases"][slower]["rows"][0]["times"]["sustained"]["p50_us"] = 20;
    const Outcome outcome = compare(before.dump(), after.dump(), {"--changed"});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    const ordered_json points = ordered_json::parse(outcome.out)["points"];
    ASSERT_EQ(points.size(), 4);
    for (const ordered_json& point : points) {
      const bool injected =
          point["suite"] == (slower == 0 ? "five" : "small") && point["implementation"] == "ours";
      EXPECT_EQ(point["change"], injected ? "slower" : "same") << point;
    }
    EXPECT_THAT(outcome.err, HasSubstr(slower == 0 ? "five: a f16" : "small: a f16"));
  }
}

// Scales each point of a checked-in file by another factor, which must be found.
TEST(Compare, FindsWhatWasInjectedInEveryPointOfRealEvidence) {
  for (const char* const name : {"bench.json", "bench-serving.json", "backward-gpu.json"}) {
    const std::filesystem::path path = std::filesystem::path(FLASHCORE_LADDER).parent_path() / name;
    const Result<ordered_json> before = bench::read_evidence(path);
    ASSERT_TRUE(before.ok()) << before.status().message();
    const Result<bench::Comparison> itself =
        bench::compare_evidence(*before, *before, "sustained", 0.03);
    ASSERT_TRUE(itself.ok()) << itself.status().message();
    for (const bench::ComparedPoint& point : itself->points) {
      EXPECT_EQ(point.before_us, point.after_us) << point.suite << " " << point.problem;
    }
    ordered_json after = *before;
    std::vector<double> factors;  // in the order of the points; 0 without a time
    for (ordered_json& one : after["cases"]) {
      for (ordered_json& row : one["rows"]) {
        const bool timed = row["times"].contains("sustained");
        factors.push_back(timed ? 2 + 0.001 * static_cast<double>(factors.size()) : 0);
        if (!timed) continue;
        ordered_json& p50 = row["times"]["sustained"]["p50_us"];
        p50 = p50.get<double>() * factors.back();
      }
    }
    const Result<bench::Comparison> injected =
        bench::compare_evidence(*before, after, "sustained", 0.03);
    ASSERT_TRUE(injected.ok()) << injected.status().message();
    ASSERT_EQ(injected->points.size(), factors.size());
    for (size_t i = 0; i < factors.size(); ++i) {
      const bench::ComparedPoint& point = injected->points[i];
      EXPECT_NEAR(point.ratio, factors[i], 1e-9) << point.suite << " " << point.problem;
      EXPECT_EQ(point.change, factors[i] > 0 ? bench::Change::slower : bench::Change::same)
          << point.suite << " " << point.problem;
    }
  }
}

TEST(Compare, SaysWhatIsInOneFileOnly) {
  ordered_json after = ordered_json::parse(fixture(10, 10.1, 20));
  after["cases"].push_back(after["cases"][0]);
  after["cases"][1]["name"] = "b";
  const Outcome outcome = compare(fixture(10, 10.1, 20), after.dump());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("not judged: 0 points only before, 2 points only after"));
}

TEST(Compare, APeerIsDriftAndNoRegression) {
  const Outcome outcome = compare(fixture(10, 10.1, 20), fixture(10, 10.1, 30));
  EXPECT_EQ(outcome.exit_code, 0);
  const ordered_json result = ordered_json::parse(outcome.out);
  EXPECT_DOUBLE_EQ(result["drift"], 1.5);
  EXPECT_DOUBLE_EQ(result["geometric_mean"], 1);
  EXPECT_THAT(outcome.err, HasSubstr("the machine's drift: +50.0% time (median of 1 peer point)"));
}

TEST(Compare, ReadsTheEvidenceOfTheLadder) {
  const Outcome outcome = flashcore_command({"compare", FLASHCORE_LADDER, FLASHCORE_LADDER});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("15_wgmma_tma"), HasSubstr("cudnn (peer)")));
}

TEST(Compare, RefusesWhatItCannotCompare) {
  const std::string good = fixture(10, 10, 20);
  const auto refused = [&](const std::string& after, const std::string& sentence, Words more = {}) {
    const Outcome outcome = compare(good, after, std::move(more));
    EXPECT_EQ(outcome.exit_code, 2) << sentence;
    EXPECT_THAT(outcome.err, HasSubstr(sentence));
  };
  const auto without = [&](auto&& bend) {
    ordered_json evidence = ordered_json::parse(good);
    bend(evidence);
    return evidence.dump();
  };
  refused("{}", "b.json: has no 'schema'");
  refused(without([](auto& e) { e["version"] = 2; }), "version: is 2, wanted 1");
  refused(without([](auto& e) { e["kind"] = "\x1b[31m"; }), "kind: is ");
  refused(without([](auto& e) { e["cases"][0]["rows"][0]["times"]["sustained"]["p50_us"] = -1; }),
          "cases[0].rows[0].times.sustained.p50_us: is -1, wanted more than 0");
  refused(without([](auto& e) { e["cases"][0].erase("rows"); }), "cases[0]: has no 'rows'");
  refused(without([](auto& e) { e["device"]["name"] = "other"; }), "device: is fixture and other");
  refused(without([](auto& e) { e["cases"].push_back(e["cases"][0]); }),
          "after: has ours of 'a f16' twice in suite 'five', wanted one time for each");
  refused(good, "none has a time by protocol 'idle'", {"--protocol", "idle"});
  refused(good, "--threshold: is -1", {"--threshold", "-1"});
  EXPECT_EQ(flashcore_command({"compare", "only-one.json"}).exit_code, 2);
}

}  // namespace
}  // namespace flashcore::tests

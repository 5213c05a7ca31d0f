// `flashcore bench --backward`: evidence of gradients, resumed, compared, refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/evidence/evidence_file.hpp"
#include "tests/cli/command.hpp"
#include "tests/cli/scratch.hpp"
#include "tests/problem_count.hpp"

namespace flashcore::tests {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kCases = R"({"schema": "flashcore-cases", "version": 1, "cases": [
  {"name": "one", "dtype": "f32", "batch": 1, "heads_q": 4, "heads_kv": 2, "seqlen_q": 5,
   "seqlen_kv": 9, "head_dim": 8, "causal": true},
  {"name": "two", "dtype": "bf16", "batch": 2, "heads_q": 1, "seqlen_q": 3, "head_dim": 8,
   "softcap": 30, "bias": "f32"}]})";

struct BenchBackward : ::testing::Test {
  Scratch scratch;
  std::string out = scratch.path("out.json");

  Words words(const Words& more = {}) const {
    Words all = {"bench",    "--backward", "--cases",   scratch.write("cases.json", kCases),
                 "--device", "cpu",        "--threads", "1",
                 "--out",    out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  ordered_json evidence() const {
    const Result<ordered_json> read = bench::read_evidence(out);
    EXPECT_TRUE(read.ok()) << read.status().message();
    return read.ok() ? *read : ordered_json::object();
  }
};

TEST_F(BenchBackward, WritesEvidenceThatNamesThePass) {
  const Outcome outcome = flashcore_command(words());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("pass     backward"), HasSubstr("cpu_simd")));
  const ordered_json found = evidence();
  EXPECT_EQ(found["pass"], "backward");
  EXPECT_EQ(found["deterministic"], true);
  EXPECT_EQ(found["complete"], true);
  ASSERT_EQ(found["cases"].size(), 2U);
  const ordered_json& one = found["cases"][0];
  EXPECT_EQ(one["pass"], "backward");
  EXPECT_EQ(one["judged"], "all rows");
  // 5 queries see 5 to 9 of 9 keys.
  EXPECT_EQ(one["flop"], 10.0 * 4 * 8 * (5 + 6 + 7 + 8 + 9));
  // q, o, dO, dQ and k, v, dK, dV, each once.
  EXPECT_EQ(one["bytes"], 4.0 * 8 * (4 * 4 * 5 + 4 * 2 * 9));
  const ordered_json& row = one["rows"][0];
  EXPECT_EQ(row["gate"]["passed"], true);
  EXPECT_EQ(row["gate"]["relative_error_limit"], 5e-6);
  EXPECT_GT(row["times"]["wall"]["tflops"], 0);
}

TEST_F(BenchBackward, TimesOneProblemWithEveryGradient) {
  const json result = document({"bench", "--backward", "--shape", "1,2,24,16", "--with",
                                "bias,sinks,d_lse", "--window", "3,0", "--device", "cpu"});
  EXPECT_EQ(result["cases"][0]["rows"][0]["gate"]["passed"], true);
  const json gradients = result["cases"][0]["gradients"];
  EXPECT_TRUE(gradients.contains("d_bias") && gradients.contains("d_sinks") &&
              gradients.contains("d_lse"));
  // 24 queries; all but the first three see 4 keys.
  EXPECT_EQ(result["cases"][0]["flop"], 10.0 * 2 * 16 * (1 + 2 + 3 + 21 * 4));
}

TEST_F(BenchBackward, GivesNoTimeToWhatFailsItsGate) {
  // Scores in the hundreds, rounded to f16 by the naive computation.
  const Outcome outcome =
      flashcore_command({"bench", "--backward", "--shape", "1,1,16,32", "--scale", "20", "--seed",
                         "3", "--kernel", "naive", "--device", "cpu", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  const json row = json::parse(outcome.out)["cases"][0]["rows"][0];
  EXPECT_EQ(row["gate"]["passed"], false);
  EXPECT_TRUE(row["times"].empty());
}

TEST_F(BenchBackward, ResumesItsOwnAndNoForwardRun) {
  ASSERT_EQ(flashcore_command(words()).exit_code, 0);
  ordered_json partial = evidence();
  partial["cases"][0]["rows"][0]["times"]["wall"]["p50_us"] = 123456.0;
  partial["cases"].erase(1);
  partial["complete"] = false;
  scratch.write("out.json", partial.dump());
  ASSERT_EQ(flashcore_command(words({"--resume"})).exit_code, 0);
  const ordered_json after = evidence();
  ASSERT_EQ(after["cases"].size(), 2U);
  EXPECT_EQ(after["cases"][0]["rows"][0]["times"]["wall"]["p50_us"], 123456.0);

  Words forward = words({"--resume"});
  std::erase(forward, "--backward");
  expect_refused(forward, 2, "was written with another pass, wanted the same one to resume");
  expect_refused(words({"--resume", "--any-order"}), 2, "was written with another deterministic");
}

TEST_F(BenchBackward, IsComparedWithABackwardRunOnly) {
  ASSERT_EQ(flashcore_command(words()).exit_code, 0);
  EXPECT_EQ(flashcore_command({"compare", out, out}).exit_code, 0);
  ordered_json forward = evidence();
  forward.erase("pass");
  expect_refused({"compare", out, scratch.write("forward.json", forward.dump())}, 2,
                 "pass: is backward and forward, wanted two files of one pass");
}

TEST_F(BenchBackward, AGateThatTakesTooLongIsARefusal) {
  const std::string cases =
      scratch.write("large.json", R"({"schema": "flashcore-cases", "version": 1, "cases": [
        {"name": "large", "dtype": "f32", "batch": 1, "heads_q": 1, "seqlen_q": 65536,
         "head_dim": 128}]})");
  const json result = document({"bench", "--backward", "--cases", cases, "--device", "cpu"});
  const json one = result["cases"][0];
  EXPECT_EQ(one["judged"], "nothing");
  EXPECT_THAT(one["rows"][0]["refusal"].get<std::string>(), HasSubstr("gate: takes 4.4e+12"));
  EXPECT_TRUE(one["rows"][0]["times"].empty());
}

// In long problems rows are judged.
TEST_F(BenchBackward, JudgesRowsOfLongProblems) {
  if (kSanitized) GTEST_SKIP() << kTooLong;
  const std::string cases =
      scratch.write("long.json", R"({"schema": "flashcore-cases", "version": 1, "cases": [
        {"name": "long", "dtype": "f16", "batch": 1, "heads_q": 1, "seqlen_q": 4096,
         "head_dim": 64, "causal": true}]})");
  const json result = document({"bench", "--backward", "--cases", cases, "--device", "cpu"});
  const json one = result["cases"][0];
  EXPECT_THAT(one["judged"].get<std::string>(), HasSubstr(" of dK and dV"));
  EXPECT_EQ(one["rows"][0]["gate"]["passed"], true) << one;
  EXPECT_GT(one["rows"][0]["gate"]["relative_error"], 0);
  EXPECT_FALSE(one["rows"][0]["times"].empty());
}

struct BackwardPeers : BenchBackward {
  ordered_json with_peer(const std::string& fault) {
    const std::string plain =
        scratch.write("plain.json", R"({"schema": "flashcore-cases", "version": 1, "cases": [
          {"name": "one", "dtype": "f32", "batch": 2, "heads_q": 4, "heads_kv": 2, "seqlen_q": 5,
           "seqlen_kv": 9, "head_dim": 8, "causal": true},
          {"name": "sinks", "dtype": "f32", "batch": 1, "heads_q": 1, "seqlen_q": 3,
           "head_dim": 8, "sinks": true},
          {"name": "softcap", "dtype": "f32", "batch": 1, "heads_q": 1, "seqlen_q": 3,
           "head_dim": 8, "softcap": 0.5},
          {"name": "window", "dtype": "f32", "batch": 2, "heads_q": 2, "seqlen_q": 9,
           "seqlen_kv": 7, "head_dim": 8, "window": [3, 1]},
          {"name": "packed", "dtype": "f32", "batch": 3, "heads_q": 4, "heads_kv": 2,
           "seqlen_q": 6, "head_dim": 8, "packed": true, "causal": true, "window": [4, -1]}]})");
    Words all = words({"--peers", FLASHCORE_PEERS, "--backends", "plain"});
    *std::next(std::find(all.begin(), all.end(), "--cases")) = plain;
    EXPECT_EQ(flashcore_command(all, {"PEER_FAULT=" + fault}).exit_code, 0);
    return evidence();
  }
};

TEST_F(BackwardPeers, AreJudgedAndTimed) {
  const ordered_json found = with_peer("");
  const ordered_json& rows = found["cases"][0]["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1]["implementation"], "plain");
  EXPECT_EQ(rows[1]["gate"]["passed"], true) << rows[1];
  EXPECT_LT(rows[1]["gate"]["relative_error"], 1e-6);
  EXPECT_DOUBLE_EQ(rows[1]["times"]["wall"]["p50_us"], 3000);
  EXPECT_EQ(rows[0]["times"]["wall"]["fastest_peer"], "plain");
  EXPECT_EQ(found["cases"][1]["rows"].size(), 1U);  // no peer is asked for sinks
  ASSERT_EQ(found["cases"].size(), 5U);
  for (size_t n = 2; n < 5; ++n) {
    const ordered_json& with_feature = found["cases"][n];
    ASSERT_EQ(with_feature["rows"].size(), 2U) << with_feature;
    EXPECT_EQ(with_feature["rows"][1]["gate"]["passed"], true) << with_feature;
  }
}

TEST_F(BackwardPeers, ThatAreWrongHaveNoTime) {
  const ordered_json found = with_peer("wrong");
  const ordered_json& row = found["cases"][0]["rows"][1];
  EXPECT_EQ(row["gate"]["passed"], false);
  EXPECT_THAT(row["gate"]["failure"].get<std::string>(), HasSubstr("dq: relative error is"));
  EXPECT_TRUE(row["times"].empty());
}

// The work of a problem with lengths depends on the lengths.
TEST_F(BenchBackward, CountsTheLengthsOfAGivenProblem) {
  for (const char* const pass : {"--backward", "--json"}) {
    const json result = document(
        {"bench", pass, "--shape", "2,2,16,16", "--with", "seqlens_kv", "--device", "cpu"});
    const double of_pair = pass == std::string("--backward") ? 10.0 * 16 : 4.0 * 16;
    EXPECT_EQ(result["cases"][0]["flop"], of_pair * 2 * 2 * 16 * 16);
  }
}

TEST_F(BenchBackward, RefusesWhatItCannotDo) {
  expect_refused({"bench", "--suite", "backward", "--device", "cpu"}, 2,
                 "--suite: is 'backward', wanted it with --backward");
  expect_refused(words({"--d-o", "q"}), 2,
                 "--d-o: is given for suites or cases, wanted it with --shape or files");
  expect_refused(words({"--gradients", "dq"}), 2, "--gradients: is given for suites or cases");
  expect_refused({"bench", "--any-order"}, 2, "--any-order: is given, wanted it only with");
  expect_refused({"bench", "--backward", "--shape", "1,1,8,8", "--no-lse"}, 2,
                 "--no-lse: is given with --backward, wanted one of them");
  expect_refused(
      {"bench", "--backward", "--shape", "1,1,8,8", "--kernel", "other", "--device", "cpu"}, 2,
      "kernel: is 'other', wanted one of this device's");
}

}  // namespace
}  // namespace flashcore::tests

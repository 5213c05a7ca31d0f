// flashcore tune from the outside: makes a CPU table in seconds, which is used afterwards;
// resuming, interruptions, concurrent tuners, invalid tables.
#include "bench/tune/tune.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/evidence/evidence_file.hpp"
#include "tests/cli/process.hpp"
#include "tests/cli/scratch.hpp"
#include "tuning/tuned_table.hpp"

namespace flashcore::tests {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

Outcome flashcore_command(Words words, Words environment = {}) {
  words.insert(words.begin(), FLASHCORE_COMMAND);
  return run_process(std::move(words), std::move(environment));
}

const char* const kCases = R"({"schema": "flashcore-cases", "version": 1, "cases": [
  {"name": "forward", "dtype": "f32", "batch": 1, "heads_q": 2, "seqlen_q": 192, "head_dim": 32,
   "causal": true},
  {"name": "decode", "dtype": "bf16", "batch": 2, "heads_q": 4, "heads_kv": 1, "seqlen_q": 1,
   "seqlen_kv": 3000, "head_dim": 64},
  {"name": "backward", "dtype": "f32", "batch": 1, "heads_q": 2, "seqlen_q": 96, "head_dim": 32,
   "backward": true}]})";

Words tune(const Scratch& scratch, Words more = {}, const std::string& cases = kCases) {
  Words words = {"tune",     "--cases", scratch.write("cases.json", cases),
                 "--device", "cpu",     "--threads",
                 "2",        "--out",   scratch.path("table.json")};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

tuning::TunedTable table_of(const Scratch& scratch) {
  const Result<tuning::ReadTable> read = tuning::read_table(scratch.path("table.json"));
  EXPECT_TRUE(read.ok() && read->is_there) << read.status().message();
  return read.ok() ? read->table : tuning::TunedTable{};
}

// Cases with one thread and lengths that have different keys.
std::string many_cases(const std::string& name, int count, int64_t heads) {
  ordered_json cases = ordered_json::array();
  for (int i = 0; i < count; ++i) {
    cases.push_back({{"name", name + std::to_string(i)},
                     {"dtype", "f32"},
                     {"batch", 1},
                     {"heads_q", heads},
                     {"seqlen_q", 32 << i},
                     {"head_dim", 16}});
  }
  return ordered_json{{"schema", "flashcore-cases"}, {"version", 1}, {"cases", cases}}.dump();
}

TEST(Tune, TheCpuInSecondsAndTheTableIsInUse) {
  const Scratch scratch;
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome =
      flashcore_command(tune(scratch, {"--seconds", "40", "--evidence", scratch.path("all.json")}));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LT(took.count(), 60) << "40 s, and a step";
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("measured 3 problems"), HasSubstr("backward"),
                                 HasSubstr("cpu_simd")));
  EXPECT_EQ(table_of(scratch).entries.size(), 3U);
  const Words environment = {"FLASHCORE_TUNING=" + scratch.path("table.json")};
  for (const Words& problem :
       {Words{"--shape", "1,2,192,32", "--dtype", "f32", "--causal"},
        Words{"--shape", "2,4,1,64", "--dtype", "bf16", "--heads-kv", "1", "--seqlen-kv", "3000"},
        Words{"--shape", "1,2,96,32", "--dtype", "f32", "--backward"}}) {
    Words words = {"explain", "--device", "cpu", "--threads", "2"};
    words.insert(words.end(), problem.begin(), problem.end());
    const Outcome explained = flashcore_command(words, environment);
    EXPECT_EQ(explained.exit_code, 0) << explained.err;
    EXPECT_THAT(explained.out, AllOf(HasSubstr("(tuning table " + scratch.path("table.json")),
                                     AnyOf(HasSubstr("% ahead of cpu_simd"),
                                           HasSubstr("none was ahead of cpu_simd"))));
    EXPECT_THAT(flashcore_command(words, {"FLASHCORE_TUNING=none"}).out,
                Not(HasSubstr("tuning table")));
  }
  // Every candidate passed its gate before any was timed.
  const Result<ordered_json> evidence = bench::read_evidence(scratch.path("all.json"));
  ASSERT_TRUE(evidence.ok()) << evidence.status().message();
  for (const ordered_json& one : (*evidence)["cases"]) {
    EXPECT_GT(one["rows"].size(), 3U);
    for (const ordered_json& row : one["rows"]) EXPECT_EQ(row["gate"]["passed"], true) << row;
    EXPECT_TRUE(one.contains("tuned"));
  }
}

// One problem would take much longer: nothing starts after the time limit, and partial results are dropped.
TEST(Tune, EndsInTimeWithinAProblem) {
  const Scratch scratch;
  const std::string cases = R"({"schema": "flashcore-cases", "version": 1, "cases": [
    {"name": "long", "dtype": "f32", "batch": 2, "heads_q": 4, "seqlen_q": 2048, "head_dim": 64}]})";
  constexpr double kSeconds = 2, kSlack = 2;  // a line may be late on a busy machine
  const Outcome outcome =
      flashcore_command(tune(scratch, {"--seconds", "2", "--verbose", "--json"}, cases));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.err);
  double last = -1;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" s  begins ") != std::string::npos) last = std::stod(line);
  }
  EXPECT_GE(last, 0);
  EXPECT_LT(last, kSeconds + kSlack) << outcome.err;
  const ordered_json document = ordered_json::parse(outcome.out);
  EXPECT_EQ(document["complete"], false);
  EXPECT_EQ(document["measured"], 0);
  EXPECT_TRUE(table_of(scratch).entries.empty());
  EXPECT_THAT(outcome.err, HasSubstr("--seconds ran out"));
}

TEST(Tune, ShowsTheTable) {
  const Scratch scratch;
  ASSERT_EQ(flashcore_command(tune(scratch)).exit_code, 0);
  const Outcome shown = flashcore_command({"tune", "--show", "--device", "cpu", "--json"},
                                          {"FLASHCORE_TUNING=" + scratch.path("table.json")});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  const ordered_json document = ordered_json::parse(shown.out);
  ASSERT_FALSE(document["entries"].empty());
  EXPECT_EQ(document["entries"][0]["state"], "current");
  EXPECT_EQ(document["table"], scratch.path("table.json"));
  EXPECT_THAT(shown.err, HasSubstr("current"));
  const Outcome none =
      flashcore_command({"tune", "--show", "--device", "cpu"}, {"FLASHCORE_TUNING=none"});
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_THAT(none.out, HasSubstr("none; `flashcore tune` makes one"));
}

TEST(Tune, GoesOnWhereItWasInterrupted) {
  const Scratch scratch;
  const std::string cases = many_cases("c", 5, 1);
  Words words = tune(scratch, {"--verbose"}, cases);
  words.insert(words.begin(), FLASHCORE_COMMAND);
  size_t before = 0;
  {
    Process process(words);
    for (int i = 0; i < 600 && before == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const Result<tuning::ReadTable> read = tuning::read_table(scratch.path("table.json"));
      ASSERT_TRUE(read.ok()) << read.status().message();
      before = read->table.entries.size();
    }
    process.send(SIGINT);
    const Outcome outcome = process.wait();
    EXPECT_THAT(outcome.exit_code, AnyOf(130, 0)) << outcome.err;
  }
  ASSERT_GT(before, 0U);
  before = table_of(scratch).entries.size();
  const Outcome rest = flashcore_command(tune(scratch, {"--json"}, cases));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  const ordered_json document = ordered_json::parse(rest.out);
  EXPECT_EQ(document["known"], before);
  EXPECT_EQ(document["measured"], 5 - before);
  EXPECT_EQ(table_of(scratch).entries.size(), 5U);
  const Outcome again = flashcore_command(
      tune(scratch, {"--json", "--again", "--seconds", "0.01"}, many_cases("c", 2, 1)));
  EXPECT_EQ(ordered_json::parse(again.out)["known"], 0) << again.err;
}

TEST(Tune, ACandidateThatHangsCostsOnlyItself) {
  const Scratch scratch;
  const Outcome outcome = flashcore_command(
      tune(scratch, {"--deadline", "0.3", "--worker-program", FLASHCORE_HANGING_WORKER, "--json"},
           many_cases("c", 2, 1)),
      {"HANG_AT=c1, cpu_simd:threads=1, gate",
       std::string("FLASHCORE_COMMAND=") + FLASHCORE_COMMAND, "HANG_PIDS=" + scratch.path("pids")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("lost c1, cpu_simd:threads=1, gate: was abandoned after 3 s"));
  EXPECT_EQ(table_of(scratch).entries.size(), 2U);
  const ordered_json document = ordered_json::parse(outcome.out);
  EXPECT_EQ(document["measured"], 2);
  EXPECT_THAT(document["cases"][1].dump(), HasSubstr("was abandoned after 3 s"));
}

TEST(Tune, TwoAtOnceLoseNothing) {
  const Scratch scratch, other;
  const auto words = [&](const Scratch& own, const std::string& name, int64_t heads) {
    return Words{FLASHCORE_COMMAND, "tune",
                 "--device",        "cpu",
                 "--threads",       "1",
                 "--cases",         own.write("cases.json", many_cases(name, 2, heads)),
                 "--out",           scratch.path("table.json")};
  };
  Process first(words(scratch, "a", 1)), second(words(other, "b", 4));
  const Outcome a = first.wait(), b = second.wait();
  EXPECT_EQ(a.exit_code, 0) << a.err;
  EXPECT_EQ(b.exit_code, 0) << b.err;
  EXPECT_EQ(table_of(scratch).entries.size(), 4U);
}

TEST(Tune, LeavesFilesThatAreNoTableOfThisDevice) {
  const Scratch scratch;
  scratch.write("table.json", "mine");
  const Outcome outcome = flashcore_command(tune(scratch));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("table.json: is not JSON"));
  EXPECT_EQ(scratch.read("table.json"), "mine");
  scratch.write("table.json", tuning::table_text({.device = {.name = "Other", .multiprocessors = 3},
                                                  .entries = {}}));
  EXPECT_THAT(flashcore_command(tune(scratch)).err, HasSubstr("is for Other with 3 SMs"));
  EXPECT_EQ(flashcore_command(
                {"tune", "--shape", "1,1,8,8", "--device", "cpu", "--out", "/proc/none/table.json"})
                .exit_code,
            2);
}

TEST(Tune, RefusesOptionsThatFixTheChoice) {
  EXPECT_THAT(flashcore_command({"tune", "--device", "cpu", "--kernel", "cpu_simd"}).err,
              HasSubstr("--kernel: is 'cpu_simd', wanted none"));
  EXPECT_THAT(flashcore_command({"tune", "--device", "cpu", "--batch-invariant"}).err,
              HasSubstr("--batch-invariant: is given"));
}

// A winner must be ahead by more than 2% and more than its noise.
ordered_json case_with(double default_us, double spread, double other_us) {
  const auto row = [&](const char* name, double us) {
    return ordered_json{
        {"implementation", name},
        {"times",
         {{"tuning",
           {{"p50_us", us}, {"p90_us", us}, {"samples", 20}, {"rounds_us", {us, us * spread}}}}}}};
  };
  ordered_json one = {{"rows", {row("own", default_us), row("other:x", other_us)}}};
  one["rows"][0]["default"] = true;
  return one;
}

TEST(Tune, AWinnerIsAheadOfTheDefaultAndOfTheNoise) {
  EXPECT_EQ(bench::tuned_json(case_with(100, 1, 97))["winner"], "other:x");
  EXPECT_EQ(bench::tuned_json(case_with(100, 1, 98.5))["winner"], "own") << "1.5% ahead";
  EXPECT_EQ(bench::tuned_json(case_with(100, 1, 98.5))["gain"], 0);
  EXPECT_EQ(bench::tuned_json(case_with(100, 1.05, 95))["winner"], "own") << "5% apart, noise 7%";
  EXPECT_EQ(bench::tuned_json(case_with(100, 1, 110))["winner"], "own");
  ordered_json failed = case_with(100, 1, 50);
  failed["rows"][0]["times"] = ordered_json::object();
  EXPECT_TRUE(bench::tuned_json(failed).is_null()) << "the default has no time";
}

}  // namespace
}  // namespace flashcore::tests

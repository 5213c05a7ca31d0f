// Every cheat of tests/evolve/cheats is rejected for the reason in its first line, and honest
// programs are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "evolve/evaluate/stage_evaluator.hpp"
#include "evolve/evaluate/time_stage.hpp"
#include "evolve/task/folder.hpp"

namespace flashcore::evolve {
namespace {

namespace fs = std::filesystem;

const fs::path kCheats = FLASHCORE_CHEATS;

Task small_task() {
  Task task;
  task.language = std::string("c");
  task.shapes = {{1, 2, 2, 64, 64, 16, 0.25f}};
  task.compiler = {"gcc", "-std=gnu11", "-O1", "-w"};
  task.budgets.call_seconds = 5;
  task.budgets.memory_mib = 64;
  task.timing = {.sample_seconds = 2e-3, .rounds = 3};
  task.device = {{"kind", "cpu"}, {"peak_flop_per_second", 1e13}};
  task.peak_flop_per_second = 1e13;
  return task;
}

Program cheat(const std::string& name) {
  return {*read_text(kCheats / "honest.h") + "#line 1\n" + *read_text(kCheats / (name + ".c")), {}};
}

std::vector<std::string> names_of_cheats() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCheats)) {
    if (entry.path().extension() == ".c") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Evaluation evaluated(const Task& task, const Program& program, const Incumbent* incumbent) {
  StageEvaluator evaluator(task, {FLASHCORE_RUNNER, "", ""});
  Result<Evaluation> found = evaluator.evaluate(program, incumbent);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *found : Evaluation{};
}

class Cheats : public testing::TestWithParam<std::string> {};

TEST_P(Cheats, EndAsTheirFirstLineSays) {
  const std::string text = *read_text(kCheats / (GetParam() + ".c"));
  std::smatch first;
  ASSERT_TRUE(std::regex_search(text, first, std::regex("^// (\\w+)(: (.*)|, not faster)?\n")));
  Task task = small_task();
  if (GetParam() == "hangs") task.budgets.call_seconds = 0.3;
  // Cheats that could gain from a wrong clock are timed together with the honest kernel.
  const Incumbent honest{cheat("honest"), 1};
  const bool timed = first[2] == ", not faster";
  const Evaluation found = evaluated(task, cheat(GetParam()), timed ? &honest : nullptr);
  const std::string said = found.stage + ": " + found.reason;
  EXPECT_EQ(to_string(found.outcome), first[1].str()) << said;
  if (first[3].matched) {
    EXPECT_TRUE(std::regex_search(found.reason, std::regex(first[3].str(), std::regex::icase)))
        << said;
  }
  if (timed) {
    EXPECT_LT(found.score, 1.3);
  }
  if (found.outcome != Outcome::valid) {
    EXPECT_EQ(found.score, 0);
    EXPECT_FALSE(found.reason.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Cheats, testing::ValuesIn(names_of_cheats()),
                         [](const auto& one) { return one.param; });

TEST(CheatsFolder, HoldsWhatTheIssueAsksFor) { EXPECT_GE(names_of_cheats().size(), 30u); }

TEST(Evaluator, TakesTheSeedOfTheExamplesWithAnyParameters) {
  const std::string source = *read_text(FLASHCORE_SEED);
  const Task task = small_task();
  for (const Values& values : {Values{}, Values{{"ROWS", "4"}, {"KEYS", "8"}, {"FAST_EXP", "1"}},
                               Values{{"ROWS", "8"}, {"KEYS", "32"}}}) {
    const Evaluation found = evaluated(task, *make_program(source, values), nullptr);
    EXPECT_EQ(found.outcome, Outcome::valid) << values_text(values) << ": " << found.reason;
    EXPECT_EQ(found.score, 1);
    EXPECT_EQ(found.evidence["times"].size(), 1u);
  }
}

TEST(Evaluator, TakesTheRightMaskAndNoOther) {
  Task task = small_task();
  task.causal = true;
  const Evaluation found = evaluated(task, cheat("honest"), nullptr);
  EXPECT_EQ(found.outcome, Outcome::correctness) << found.reason;
}

TEST(Evaluator, TakesATaskInCppWithACausalMask) {
  Task task = small_task();
  task.language = "c++";
  task.compiler = {"g++", "-std=gnu++20", "-O1", "-w", "-fno-exceptions", "-fno-rtti"};
  task.causal = true;
  const auto program = [](const std::string& keys) {
    return Program{*read_text(kCheats / "honest.h") + R"(
extern "C" void attention(SIGNATURE) {
  for (int64_t row = 0; row < batch * heads_q * seqlen_q; ++row) {
    const int64_t head = row / seqlen_q, group = heads_q / heads_kv;
    const int64_t pair = head / heads_q * heads_kv + head % heads_q / group;
    const auto visible = [&](int64_t i) { return )" +
                       keys + R"(; };
    const int64_t keys = visible(row % seqlen_q);
    honest_row(q + row * head_dim, k + pair * seqlen_kv * head_dim, v + pair * seqlen_kv * head_dim,
               o + row * head_dim, lse + row, 1, 1, 1, 1, keys, head_dim, scale, 0);
  }
})",
                   {}};
  };
  Evaluation found = evaluated(task, program("i + seqlen_kv - seqlen_q + 1"), nullptr);
  EXPECT_EQ(found.outcome, Outcome::valid) << found.reason;
  found = evaluated(task, program("i + 1 < seqlen_kv ? i + 1 : seqlen_kv"), nullptr);
  EXPECT_EQ(found.outcome, Outcome::correctness) << "the diagonal is at the bottom right";
}

TEST(Evaluator, SeesThatAFasterProgramIsFaster) {
  // Computes each row twice, so it is half as fast.
  const std::string twice =
      "void attention(SIGNATURE) { for (volatile int i = 0; i < 2; ++i) honest(ARGUMENTS); }\n";
  const Incumbent slow{{*read_text(kCheats / "honest.h") + twice, {}}, 3};
  const testing::Matcher<double> is_twice = testing::AllOf(testing::Gt(4.5), testing::Lt(7.5));
  Evaluation found;
  for (int tries = 0; tries < 3; ++tries) {  // other work may share this processor
    found = evaluated(small_task(), cheat("honest"), &slow);
    if (found.outcome == Outcome::valid && is_twice.Matches(found.score)) break;
  }
  EXPECT_EQ(found.outcome, Outcome::valid) << found.reason;
  EXPECT_THAT(found.score, is_twice);
  EXPECT_EQ(found.stage, "recheck");
}

TEST(Evaluator, RefusesTimesPastThePeak) {
  Task task = small_task();
  task.peak_flop_per_second = 1e6;
  const Evaluation found = evaluated(task, cheat("honest"), nullptr);
  EXPECT_EQ(found.outcome, Outcome::constraints);
  EXPECT_THAT(found.reason, testing::HasSubstr("the peak of this machine"));
}

TEST(Evaluator, RefusesALargeSourceAndASlowCompiler) {
  Task task = small_task();
  task.budgets.source_bytes = 100;
  EXPECT_EQ(evaluated(task, cheat("honest"), nullptr).outcome, Outcome::resources);
  task = small_task();
  task.budgets.compile_seconds = 0.001;
  EXPECT_EQ(evaluated(task, cheat("honest"), nullptr).outcome, Outcome::timeout);
}

}  // namespace
}  // namespace flashcore::evolve

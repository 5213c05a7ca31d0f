// The loop, the store and the population, with an evaluator that needs no compiler.
#include "evolve/loop/loop.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "evolve/loop/population.hpp"
#include "evolve/show/leaderboard.hpp"
#include "evolve/show/plot.hpp"
#include "tests/cli/scratch.hpp"

namespace flashcore::evolve {
namespace {

constexpr int64_t kAttempts = 60;
const std::string kSource =
    "//@ param A {1, 2, 3, 4, 5, 6, 7, 8}\n//@ param B {1, 2, 3, 4, 5, 6, 7, 8}\nint x;\n";

// The score depends only on the program, and takes a while, so that a run can be killed meanwhile.
class FakeEvaluator final : public Evaluator {
 public:
  explicit FakeEvaluator(int microseconds) : microseconds_(microseconds) {}
  Result<Evaluation> evaluate(const Program& program, const Incumbent* incumbent) override {
    ::usleep(static_cast<unsigned>(microseconds_));
    Evaluation found;
    found.stage = "time";
    const int a = std::stoi(program.values.at("A")), b = std::stoi(program.values.at("B"));
    if (a == 7) {
      found.outcome = Outcome::correctness;
      found.reason = "o[0] is 7";
      return found;
    }
    found.score = incumbent == nullptr ? 1 : 1 + a + 0.1 * b;
    return found;
  }

 private:
  int microseconds_;
};

Result<LoopEnd> loop_in(const std::string& path, const std::string& proposer_name,
                        const std::string& preset, int microseconds,
                        const std::string& seed = "42") {
  Result<Store> store = Store::open(path);
  if (!store.ok()) return store.status();
  const Result<std::string> random = store->setting("random");
  if (random.ok() && random->empty()) {
    const Status status = store->set("random", seed);
    if (!status.ok()) return status;
  }
  auto proposer = make_proposer(proposer_name, 10);
  if (!proposer.ok()) return proposer.status();
  FakeEvaluator evaluator(microseconds);
  const Result<Program> seed_program = make_program(kSource, {});
  if (!seed_program.ok()) return seed_program.status();
  RunPlan plan;
  plan.proposer = proposer_name;
  plan.preset = preset;
  plan.last_attempt = kAttempts;
  const LoopOptions options{plan, nlohmann::ordered_json::object(), *seed_program, {}};
  return run_loop(options, *store, **proposer, evaluator);
}

// The proposals, in order.
std::vector<std::string> proposals(const std::string& path) {
  std::vector<std::string> lines;
  const Result<std::vector<Attempt>> attempts = Store::open(path)->attempts();
  for (const Attempt& one : *attempts) {
    std::string line =
        one.origin.operation + " " + one.origin.name + " " + one.hash + " " + one.outcome;
    for (const int64_t parent : one.origin.parents) line += fmt::format(" {}", parent);
    lines.push_back(line);
  }
  return lines;
}

TEST(Loop, GoesOnAsIfItHadNotBeenKilled) {
  const tests::Scratch scratch;
  const Result<LoopEnd> end = loop_in(scratch.path("whole"), "params", "full", 0);
  ASSERT_TRUE(end.ok()) << end.status().message();
  const std::vector<std::string> whole = proposals(scratch.path("whole"));
  const uint64_t seed = static_cast<uint64_t>(::getpid());
  bench::Random random(seed);
  int kills = 0, starts = 0;
  // A run may finish before its first kill.
  for (int run = 0; kills < 8; ++run) {
    const std::string folder = scratch.path("killed " + std::to_string(run));
    for (bool done = false; !done;) {
      ASSERT_LT(++starts, 2000) << "seed " << seed;
      const pid_t child = ::fork();
      if (child == 0) ::_exit(loop_in(folder, "params", "full", 300).ok() ? 0 : 1);
      // Kills come later and later: on a slow machine early ones would leave no time for an attempt.
      ::usleep(static_cast<unsigned>(random.integer(500, 40000 + 500 * starts)));
      ::kill(child, SIGKILL);
      int status = 0;
      ::waitpid(child, &status, 0);
      kills += WIFSIGNALED(status) ? 1 : 0;
      ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "seed " << seed;
      done = WIFEXITED(status);
    }
    EXPECT_EQ(proposals(folder), whole) << "seed " << seed;
  }
}

// A replay gives the same run with other random numbers and another preset: it chooses nothing at random.
TEST(Loop, ReplaysItsExport) {
  for (const char* const search : {"params:random", "params:evolution"}) {
    const tests::Scratch scratch;
    ASSERT_TRUE(loop_in(scratch.path("first"), search, "full", 0).ok());
    const std::vector<Attempt> first = *Store::open(scratch.path("first"))->attempts();
    const std::string file = scratch.write("run.jsonl", jsonl(first));
    const Result<LoopEnd> end =
        loop_in(scratch.path("again"), "replay:" + file, "insight", 0, "43");
    ASSERT_TRUE(end.ok()) << end.status().message();
    const std::vector<Attempt> again = *Store::open(scratch.path("again"))->attempts();
    EXPECT_EQ(proposals(scratch.path("again")), proposals(scratch.path("first")));
    const Attempt& best = *elites_of(first, 1).front();
    EXPECT_EQ(elites_of(again, 1).front()->id, best.id);
    const Result<std::vector<nlohmann::ordered_json>> lines = replay_lines(file);
    ASSERT_TRUE(lines.ok());
    EXPECT_EQ(reproduction_text(*lines, again),
              fmt::format("59 of 59 recorded outcomes are the same; the recording's best, attempt "
                          "{0}, has {1:.2f} there and {1:.2f} here",
                          best.id, best.score));
  }
}

TEST(Loop, AReplayTakesParentsThatCameBefore) {
  const tests::Scratch scratch;
  for (const char* const parents : {"[2]", "[0]", "[]", "[1, 1, 1]", "[-1]", "1", "[1.5]"}) {
    const std::string file = scratch.write(
        "bad.jsonl",
        fmt::format("{{\"version\": 1, \"name\": \"a\", \"parents\": {}}}\n", parents));
    const auto proposer = replay_proposer(file);
    ASSERT_FALSE(proposer.ok()) << parents;
    EXPECT_THAT(proposer.status().message(),
                testing::HasSubstr("line 1 has other parents, wanted one or two earlier attempts"));
  }
}

// An unknown member in a proposer's answer is a misspelling.
TEST(Loop, AKeyThatIsNotKnownIsRefusedWithTheNearest) {
  const tests::Scratch scratch;
  const std::string file =
      scratch.write("one.jsonl", "{\"version\": 1, \"name\": \"a\", \"parametres\": {\"A\": 2}}\n");
  ASSERT_TRUE(loop_in(scratch.path("run"), "replay:" + file, "full", 0).ok());
  EXPECT_EQ((*Store::open(scratch.path("run"))->attempts())[1].reason,
            "has 'parametres', wanted a key that is known; the nearest is 'parameters'");
}

TEST(Loop, EveryPresetAndSearchFindsTheBest) {
  for (const char* const preset : {"free", "insight", "full"}) {
    for (const char* const search : {"params:random", "params:local", "params:evolution"}) {
      const tests::Scratch scratch;
      const Result<LoopEnd> end = loop_in(scratch.path("run"), search, preset, 0);
      ASSERT_TRUE(end.ok()) << end.status().message();
      EXPECT_EQ(*end, LoopEnd::attempts);
      const std::vector<Attempt> all = *Store::open(scratch.path("run"))->attempts();
      const auto best = elites_of(all, 3);
      ASSERT_EQ(best.size(), 3u);
      EXPECT_GE(best[0]->score, 8.5) << preset << " " << search;
      EXPECT_GE(best[0]->score, best[1]->score);
      // Each program only once.
      EXPECT_TRUE(std::none_of(all.begin(), all.end(),
                               [](const Attempt& one) { return one.outcome == "duplicate"; }));
    }
  }
}

TEST(Loop, EndsWhenThereIsNothingLeft) {
  const tests::Scratch scratch;
  const std::string file = scratch.write(
      "two.jsonl",
      "{\"version\": 1, \"name\": \"a\", \"parameters\": {\"A\": 2}, \"predicted\": {\"score\": "
      "3}}\n"
      "{\"version\": 1, \"name\": \"b\", \"parameters\": {\"A\": \"2\"}, \"thought\": \"again\"}\n"
      "{\"version\": 1, \"name\": \"c\", \"parameters\": {\"C\": 1}}\n"
      "{\"version\": 1, \"name\": \"d\"}\n{\"version\": 2, \"name\": \"e\", \"source\": \"\"}\n");
  const Result<LoopEnd> end = loop_in(scratch.path("run"), "replay:" + file, "full", 0);
  ASSERT_TRUE(end.ok()) << end.status().message();
  EXPECT_EQ(*end, LoopEnd::nothing_left);
  const std::vector<Attempt> all = *Store::open(scratch.path("run"))->attempts();
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[1].outcome, "valid");
  EXPECT_EQ(all[1].origin.predicted, 3);
  EXPECT_EQ(all[2].outcome, "duplicate");
  EXPECT_EQ(all[2].reason, "the same program as attempt 2");
  EXPECT_EQ(all[3].reason, "parameters: has 'C', wanted one that the source declares");
  EXPECT_THAT(all[4].reason, testing::HasSubstr("neither a source nor parameters"));
  EXPECT_EQ(all[5].reason, "version: is 2, wanted 1");
}

TEST(Loop, ShowsWhatItDid) {
  const tests::Scratch scratch;
  ASSERT_TRUE(loop_in(scratch.path("run"), "params", "full", 0).ok());
  const std::vector<Attempt> all = *Store::open(scratch.path("run"))->attempts();
  EXPECT_EQ(lineage(all).size(), all.size());
  EXPECT_EQ(leaderboard(all, 5).lines().size(), 6u);
  EXPECT_THAT(outcomes_text(all), testing::HasSubstr("valid"));
  const std::string svg = plot_svg(all, "a <b> & \"c\"");
  EXPECT_THAT(svg, testing::HasSubstr("a &lt;b> &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(report_html(all, "run"), testing::HasSubstr("<svg"));
}

}  // namespace
}  // namespace flashcore::evolve

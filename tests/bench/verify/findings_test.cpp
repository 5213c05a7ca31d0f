#include "bench/verify/findings.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "bench/verify/verified.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

Verdict verdict(double scaled_error, const std::string& failure = {}) {
  Verdict one;
  one.passed = failure.empty();
  one.failure = failure;
  one.max_scaled_error = scaled_error;
  return one;
}

Trial trial(uint64_t seed, const std::string& name) {
  Trial one;
  one.seed = seed;
  one.name = name;
  one.repeat = [seed](const std::string& kernel) { return kernel + " " + std::to_string(seed); };
  return one;
}

TEST(Tally, HasTheWorstErrorTheFirstFailureAndTheFirstRefusal) {
  Tally tally;
  tally.add(verdict(1), "a");
  tally.add(verdict(3, "too far"), "b");
  tally.add(verdict(2, "NaN"), "c");
  tally.refuse("too long");
  tally.refuse("too wide");
  EXPECT_EQ(tally.passed, 1);
  EXPECT_EQ(tally.failed, 2);
  EXPECT_EQ(tally.refused, 2);
  EXPECT_EQ(tally.max_scaled_error, 3);
  EXPECT_EQ(tally.failure, "b: too far");
  EXPECT_EQ(tally.refusal, "too long");
  EXPECT_EQ(tally.different, 0);
}

TEST(Tally, CountsRunsWhoseRepetitionGaveOtherBits) {
  Tally tally;
  Verdict other_bits = verdict(1, "a second run gives other bits");
  other_bits.repeats = false;
  tally.add(other_bits, "a");
  tally.add(verdict(1), "b");
  EXPECT_EQ(tally.failed, 1);
  EXPECT_EQ(tally.different, 1);
}

TEST(Findings, AreInOrderOfSeedsWithTheCommandThatRepeatsThem) {
  Findings found;
  found.add("k2", verdict(1, "wrong"), trial(7, "seed 7"));
  found.add("k2", verdict(1, "wrong"), trial(3, "seed 3"));
  found.add("k1", verdict(1, "wrong"), trial(3, "seed 3"));
  found.add("k1", verdict(1), trial(4, "seed 4"));
  const auto failures = failures_json(found);
  ASSERT_EQ(failures.size(), 3U);
  EXPECT_EQ(failures[0]["repeat"], "k1 3");
  EXPECT_EQ(failures[1]["repeat"], "k2 3");
  EXPECT_EQ(failures[2]["repeat"], "k2 7");
  const auto tallies = tallies_json(found);
  ASSERT_EQ(tallies.size(), 2U);
  EXPECT_EQ(tallies[0]["kernel"], "k1");
  EXPECT_EQ(tallies[0]["passed"], 1);
  EXPECT_EQ(tallies[1]["failed"], 2);
}

TEST(Verified, HasAllFunctionsOfTheKernelsThatComputedAProblem) {
  const auto launching = [](std::set<std::string> functions, const std::string& failure = {}) {
    Verdict one = verdict(1, failure);
    one.launched = std::move(functions);
    return one;
  };
  Findings found;
  found.add("fast", launching({"rows", "join"}), trial(1, "seed 1"));
  found.add("fast", launching({"rows", "short"}, "wrong"), trial(2, "seed 2"));
  found.refuse("other", "too long");
  Verified all;
  all.add(found);
  Tally more;
  more.add(launching({"rows", "wide"}), "small f16");
  all.add("fast", more);
  all.add("slow", more);
  using Functions = std::set<std::string>;
  EXPECT_EQ(all.ran, (std::map<std::string, Functions>{{"fast", {"join", "rows", "short", "wide"}},
                                                       {"slow", {"rows", "wide"}}}));
}

TEST(ForEachTrial, EndsWithTheFirstError) {
  int64_t judged = 0;
  const Status status = for_each_trial(
      "test", 100, 1, [](int64_t n) { return std::to_string(n); },
      [&](int64_t n) -> Status {
        ++judged;
        if (n == 3) return invalid("n: is 3, wanted another");
        return {};
      });
  EXPECT_EQ(status.message(), "n: is 3, wanted another");
  EXPECT_EQ(judged, 4);
}

}  // namespace
}  // namespace flashcore::bench

// Parsing the output of compute-sanitizer.
#include "bench/process/sanitizer.hpp"

#include <gtest/gtest.h>

#include "bench/process/child_process.hpp"

namespace flashcore::bench {
namespace {

const std::vector<std::string> kRungs = {"a", "b", "c"};

TEST(Sanitizer, HoldsComplaintsAgainstTheRungThatRan) {
  const SanitizerResults results = parse_sanitizer(
      "========= COMPUTE-SANITIZER\n"
      "flashcore: begins a\n"
      "flashcore: ends a\n"
      "flashcore: begins b\n"
      "========= Error: Race reported between Write access at kernel+0x10\n"
      "=========     and Read access at kernel+0x20 [8 hazards]\n"
      "=========\n"
      "flashcore: ends b\n"
      "flashcore: begins c\n"
      "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n",
      kRungs);
  EXPECT_TRUE(results.at("a").passed());
  EXPECT_TRUE(results.at("b").ran);
  EXPECT_FALSE(results.at("b").passed());
  EXPECT_EQ(results.at("b").findings, 2);
  EXPECT_EQ(results.at("b").first.front(),
            "Error: Race reported between Write access at kernel+0x10");
  EXPECT_FALSE(results.at("c").ran);  // it never ended
  EXPECT_FALSE(results.at("c").passed());
}

TEST(Sanitizer, ComplaintsOutsideOfARungCountForAll) {
  const SanitizerResults results = parse_sanitizer(
      "========= Error: could not start\nflashcore: begins a\nflashcore: ends a\n", {"a"});
  EXPECT_TRUE(results.at("a").ran);
  EXPECT_FALSE(results.at("a").passed());
}

TEST(Sanitizer, NothingRanIsNoPass) { EXPECT_FALSE(parse_sanitizer("", {"a"}).at("a").passed()); }

TEST(Sanitizer, MarksAreReadBack) {
  const std::string text = sanitizer_mark("a", true) + "\n" + sanitizer_mark("a", false) + "\n";
  EXPECT_TRUE(parse_sanitizer(text, {"a"}).at("a").passed());
}

TEST(ChildProcess, GivesOutputAndStatus) {
  const Result<ChildOutput> output =
      run_child({"sh", "-c", "echo out; echo err >&2; exit 7"}, {.errors = true});
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_EQ(output->exit_status, 7);
  EXPECT_EQ(output->text, "out\nerr\n");
  EXPECT_EQ(run_child({"no-such-program-here"}, {}).status().code(), StatusCode::unsupported);
  EXPECT_TRUE(on_path("sh"));
  EXPECT_FALSE(on_path("no-such-program-here"));
}

}  // namespace
}  // namespace flashcore::bench

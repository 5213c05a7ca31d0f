// The launch lines of GPU candidates: untrusted text.
#include "evolve/runner/launch_lines.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

namespace flashcore::evolve {
namespace {

TEST(LaunchLines, AreExpressionsOfWholeNumbers) {
  const Names names = [](const std::string& name) -> std::optional<int64_t> {
    if (name == "seqlen_q") return 130;
    return std::nullopt;
  };
  const auto value = [&](const std::string& text) {
    std::string error;
    const std::optional<int64_t> found = evaluate(text, names, error);
    return found ? std::to_string(*found) : error;
  };
  EXPECT_EQ(value("2 + 3 * (4 - 1)"), "11");
  EXPECT_EQ(value("ceil_div(seqlen_q, 64) * max(2, min(5, 3))"), "9");
  EXPECT_EQ(value("seqlen_q % 64"), "2");
  EXPECT_EQ(value("seqlen"), "'seqlen': there is no name 'seqlen'");
  EXPECT_EQ(value("1 / 0"), "'1 / 0': divides by a number that is not positive");
  EXPECT_EQ(value("9223372036854775807 + 1"), "'9223372036854775807 + 1': is past 64 bits");
  EXPECT_EQ(value("4 4"), "'4 4': is followed by '4'");
  EXPECT_EQ(value(""), "'': lacks a number or a name");
  EXPECT_EQ(value(std::string(400, '(')), "'" + std::string(400, '(') + "': is nested too deeply");
  EXPECT_EQ(value("min(1)"), "'min(1)': min has two arguments");
}

TEST(LaunchLines, AreReadFromASource) {
  LaunchLines lines;
  std::string error;
  ASSERT_TRUE(
      read_launch_lines("//@ launch grid min(2, 3), 4\n//@ launch block 128\nint x;\n"
                        "//@ launch map k box BLOCK, 64 swizzle 128\n",
                        lines, error))
      << error;
  EXPECT_THAT(lines.grid, testing::ElementsAre("min(2, 3)", "4"));
  EXPECT_EQ(lines.maps[1]->rows, "BLOCK");
  EXPECT_EQ(lines.maps[1]->swizzle, 128);
  for (const char* const wrong :
       {"//@ launch grid 1\n", "//@ launch grid 1\n//@ launch grid 1\n//@ launch block 1\n",
        "//@ launch grid 1,\n//@ launch block 1\n", "//@ launch speed 9\n",
        "//@ launch map x box 1, 2 swizzle 128\n", "//@ launch map q box 1, 2 swizzle 5\n",
        "//@ launch grid 1, 1, 1, 1\n//@ launch block 1\n"}) {
    LaunchLines read;
    EXPECT_FALSE(read_launch_lines(wrong, read, error)) << wrong;
    EXPECT_FALSE(error.empty());
  }
}

}  // namespace
}  // namespace flashcore::evolve

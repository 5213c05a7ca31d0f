// Every option of every command, found in the parser's own lists.
#include "cli/parser.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "cli/command.hpp"
#include "tests/problem_count.hpp"

namespace flashcore::tests {
namespace {

using ::testing::HasSubstr;

using Words = std::vector<std::string>;

// Returns the message that refuses a command line, or "".
std::string refusal_of(const Words& words) {
  bool json = false;
  return cli::parse_command_line(words, json).status().message();
}

// Calls `visit` with the command, an option's spellings, and whether it is positional.
template <class Visit>
void for_each_value(Visit visit) {
  for (const cli::Command& command : cli::all_commands()) {
    CLI::App app;
    cli::OptionSet options(app);
    command.declare(options);
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_items_expected_max() == 0) continue;  // a flag
      Words names;
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      for (const std::string& name : option->get_snames()) names.push_back("-" + name);
      visit(command.name, names, option->get_group().empty());
    }
  }
}

TEST(Parser, RefusesAnEmptyValueOfEveryOption) {
  int values = 0;
  for_each_value([&](const std::string& command, const Words& names, bool hidden) {
    if (hidden) {  // for child processes: CLI11 does not name it
      EXPECT_THAT(refusal_of({command, names.at(0), ""}), HasSubstr("is ''"));
      ++values;
      return;
    }
    if (names.empty()) {  // a positional one
      EXPECT_THAT(refusal_of({command, ""}), HasSubstr("is ''"));
      ++values;
    }
    for (const std::string& name : names) {
      const bool is_long = name.starts_with("--");  // messages use a short option's long name
      EXPECT_THAT(refusal_of({command, name, ""}), HasSubstr((is_long ? name : "") + ": is ''"));
      ++values;
      if (!is_long || kSanitized) continue;  // the same parser, for minutes
      EXPECT_THAT(refusal_of({command, name + "="}), HasSubstr(name + ": is ''"));
      EXPECT_THAT(refusal_of({command, name + "=", "word"}), HasSubstr(name + ": is ''"));
    }
  });
  EXPECT_GE(values, 100);  // otherwise this test does not find them
}

TEST(Parser, SaysNothingOfAValueThatIsThere) {
  EXPECT_EQ(refusal_of({"run", "--shape", "1,1,8,8", "--out", "o.npy", "--scale=0.5"}), "");
  EXPECT_EQ(refusal_of({"compare", "before.json", "after.json"}), "");
}

}  // namespace
}  // namespace flashcore::tests

// The commands of README.md and docs/: each one parses, names existing files, and can
// be typed unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "cli/parser.hpp"

namespace flashcore::tests {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

const fs::path kRoot = FLASHCORE_ROOT;

std::vector<fs::path> pages() {
  std::vector<fs::path> found = {kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// A line of a block to type, or the text between backticks in a sentence.
struct Piece {
  std::string text;
  bool block;
};

std::vector<Piece> code_of(const fs::path& page) {
  std::vector<Piece> found;
  std::string prose;
  std::ifstream file(page);
  bool fenced = false, continued = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (fenced || line.starts_with("    ")) {
      line.erase(0, line.find_first_not_of(' '));
      const bool goes_on = line.ends_with('\\');
      if (goes_on) line.pop_back();
      if (continued) {
        found.back().text += line;
      } else {
        found.push_back({line, true});
      }
      continued = goes_on;
      continue;
    } else {
      prose += line + '\n';
    }
  }
  static const std::regex kSpan("`([^`]+)`");
  for (std::sregex_iterator span(prose.begin(), prose.end(), kSpan), end; span != end; ++span) {
    found.push_back({std::regex_replace((*span)[1].str(), std::regex("\n"), " "), false});
  }
  return found;
}

// The words of a command, split like in a shell; none if the piece is not a command.
Words command_words(const Piece& piece) {
  std::string text = piece.text;
  if (text.starts_with("$ ")) text.erase(0, 2);
  text = std::regex_replace(text, std::regex("^([A-Z_]+=\\S+ +)+"), "");      // the environment
  text = std::regex_replace(text, std::regex("(^|\\s)(#|\\||>|&&) .*"), "");  // what follows
  static const std::regex kProgram("^(build/bin/|\\./)?flashcore (.*)$");
  static const std::regex kOther("^(python3|\\./run\\.sh|build/bench/\\S+)( .*)?$");
  if (!std::regex_match(text, kProgram) && !std::regex_match(text, kOther)) return {};
  Words words;
  static const std::regex kWord("'([^']*)'|(\\S+)");
  for (std::sregex_iterator word(text.begin(), text.end(), kWord), end; word != end; ++word) {
    words.push_back((*word)[1].matched ? (*word)[1].str() : (*word)[2].str());
  }
  return words;
}

bool is_placeholder(const std::string& word) {
  return word.find("...") != std::string::npos || word.find_first_of("[]") != std::string::npos ||
         std::regex_search(word, std::regex("(^|[-.,/])[A-Z]{3,}"));
}

// Replaces "N" by a number; leaves out other placeholders.
Words filled_in(Words words) {
  std::replace(words.begin(), words.end(), std::string("N"), std::string("1"));
  return words;
}

TEST(Pages, HaveCommandsThatParse) {
  int commands = 0;
  for (const fs::path& page : pages()) {
    for (const Piece& piece : code_of(page)) {
      Words words = filled_in(command_words(piece));
      if (words.size() < 2 || !words[0].ends_with("flashcore")) continue;
      words.erase(words.begin());
      if (std::any_of(words.begin(), words.end(), is_placeholder)) continue;
      ++commands;
      bool json = false;
      const Result<cli::Request> request = cli::parse_command_line(words, json);
      EXPECT_TRUE(request.ok()) << page << ": " << piece.text << "\n" << request.status().message();
    }
  }
  EXPECT_GE(commands, 40);  // otherwise this test does not find them
}

TEST(Pages, NameFilesThatAreThere) {
  static const std::set<std::string> kOutputs = {"--out", "-o", "--lse-out", "--save-inputs",
                                                 "--json"};
  static const std::regex kFile("[\\w./-]+\\.(safetensors|npy|json|txt|py|sh)");
  int files = 0;
  for (const fs::path& page : pages()) {
    std::set<std::string> written;  // files that the page's commands have written
    for (const Piece& piece : code_of(page)) {
      const Words words = command_words(piece);
      for (size_t i = 1; i < words.size(); ++i) {
        if (!std::regex_match(words[i], kFile) || is_placeholder(words[i])) continue;
        ++files;
        if (kOutputs.contains(words[i - 1])) {
          written.insert(words[i]);
        } else {
          EXPECT_TRUE(written.contains(words[i]) || fs::exists(kRoot / words[i]))
              << page << ": " << piece.text << ": there is no " << words[i];
        }
      }
    }
  }
  EXPECT_GE(files, 15);
}

TEST(Pages, DoNotAssumeAnInstalledCommand) {
  for (const fs::path& page : pages()) {
    for (const Piece& piece : code_of(page)) {
      const Words words = command_words(piece);
      if (!piece.block || words.empty()) continue;
      EXPECT_NE(words[0], "flashcore")
          << page << ": " << piece.text << "\nwanted build/bin/flashcore";
    }
  }
}

}  // namespace
}  // namespace flashcore::tests

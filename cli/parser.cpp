#include "cli/parser.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "cli/command.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 a check failed, 2 bad usage or input, or output that cannot be "
    "written,\n"
    "3 unsupported, 4 device error or out of memory, 5 internal.\n\n"
    "Begin with:\n"
    "  flashcore run --shape 2,8,512,64 --causal --check\n"
    "  flashcore run --help";

// Keeps at most one empty line between paragraphs, and none at the end.
std::string tidy(std::string text) {
  for (size_t gap = 0; (gap = text.find("\n\n\n")) != std::string::npos;) text.erase(gap, 1);
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

// Refuses "--out=" without a value: CLI11 would take the next word.
Status check_values(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      return invalid("{}: is '', wanted a value", word.substr(0, word.size() - 1));
    }
  }
  return {};
}

Result<Request> not_parsed(CLI::App& app, const std::vector<std::string>& words,
                           const CLI::ParseError& error) {
  Request request;
  if (error.get_exit_code() == 0) {  // --help and --version
    std::ostringstream out;
    app.exit(error, out, out);
    request.help = tidy(out.str());
    return request;
  }
  if (words.empty()) {
    request.help = tidy(app.help());
    request.nothing_asked = true;
    return request;
  }
  std::string command = "flashcore";
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  return invalid("{} ({} --help)", error.what(), command);
}

}  // namespace

Result<Request> parse_command_line(std::vector<std::string> words, bool& json) {
  CLI::App app("FlashCore: softmax(Q K^T) V on CPUs and GPUs, checked against fp64.", "flashcore");
  app.set_version_flag("--version", "flashcore " + build_info().version);
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  app.footer(kFooter);

  std::vector<std::pair<CLI::App*, Command>> commands;
  for (Command& command : all_commands()) {
    CLI::App* const sub = app.add_subcommand(command.name, command.summary);
    OptionSet options(*sub);
    command.declare(options);
    options.group("Output");
    options.flag("--json", json, "One JSON document on stdout; text goes to stderr");
    if (!command.examples.empty()) sub->footer("Examples:\n" + command.examples);
    sub->allow_extras(command.takes_any_words);
    commands.emplace_back(sub, std::move(command));
  }
  if (!words.empty() && words[0] == "help") {  // help COMMAND becomes COMMAND --help
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  const std::string first = words.empty() ? "-" : words[0];
  std::string names;
  bool known = first.starts_with('-');
  for (const auto& [sub, command] : commands) {
    known = known || command.name == first;
    names += (names.empty() ? "" : ", ") + command.name;
  }
  // The parser may stop before it reaches --json.
  json = std::find(words.begin(), words.end(), "--json") != words.end();
  if (!known) return invalid("command: is '{}', wanted one of {}", first, names);
  FLASHCORE_RETURN_IF_ERROR(check_values(words));
  try {
    app.parse(
        std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes words in reverse
  } catch (const CLI::ParseError& error) {
    return not_parsed(app, words, error);
  }
  for (auto& [sub, command] : commands) {
    if (!sub->parsed()) continue;
    Request request;
    request.execute = std::move(command.execute);
    return request;
  }
  return Status(StatusCode::internal, "no command was parsed");
}

}  // namespace flashcore::cli

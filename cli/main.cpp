// flashcore: fused attention from the command line. docs/cli.md describes it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/plan_choice.hpp"

namespace flashcore::cli {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 3 unsupported,\n"
    "4 device error or out of memory, 5 internal.\n\n"
    "Begin with:\n"
    "  flashcore run --shape 2,8,512,64 --causal --check\n"
    "  flashcore run --help";

// One empty line at most between paragraphs, none at the end.
std::string tidy(std::string text) {
  for (size_t gap = 0; (gap = text.find("\n\n\n")) != std::string::npos;) text.erase(gap, 1);
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

int parse_failed(CLI::App& app, Session& session, const std::vector<std::string>& words,
                 const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help and --version
    std::ostringstream out;
    app.exit(error, out, out);
    fmt::print("{}\n", tidy(out.str()));
    return static_cast<int>(ExitCode::ok);
  }
  // The parser may have stopped before it came to --json.
  for (const std::string& word : words) session.json = session.json || word == "--json";
  if (words.size() < 2) {  // nothing was asked: say what can be
    fmt::print(stderr, "{}\n", tidy(app.help()));
    return static_cast<int>(ExitCode::bad_input);
  }
  std::string command = "flashcore";
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  return static_cast<int>(session.fail(
      {StatusCode::invalid_argument, fmt::format("{} ({} --help)", error.what(), command)}));
}

int run(int argc, char** argv, Session& session) {
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
    options.flag("--json", session.json, "One JSON document on stdout; text goes to stderr");
    if (!command.examples.empty()) sub->footer("Examples:\n" + command.examples);
    sub->allow_extras(command.takes_any_words);
    commands.emplace_back(sub, std::move(command));
  }
  std::vector<const char*> words(argv, argv + argc);
  if (words.size() > 1 && std::string_view(words[1]) == "help") {  // help COMMAND: COMMAND --help
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  const std::string first = words.size() > 1 ? words[1] : "-";
  std::string names;
  bool known = first.starts_with('-');
  for (const auto& [sub, command] : commands) {
    known = known || command.name == first;
    names += (names.empty() ? "" : ", ") + command.name;
  }
  if (!known) {
    return static_cast<int>(
        session.fail({StatusCode::invalid_argument,
                      fmt::format("command: is '{}', wanted one of {}", first, names)}));
  }
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError& error) {
    return parse_failed(app, session, {words.begin(), words.end()}, error);
  }
  for (const auto& [sub, command] : commands) {
    if (!sub->parsed()) continue;
    const Result<ExitCode> code = command.execute(session);
    return static_cast<int>(code.ok() ? *code : session.fail(code.status()));
  }
  return static_cast<int>(ExitCode::internal);
}

}  // namespace
}  // namespace flashcore::cli

int main(int argc, char** argv) {
  using flashcore::Status;
  using flashcore::StatusCode;
  flashcore::cli::Session session;
  try {
    flashcore::cli::take_forced_kernel();
    return flashcore::cli::run(argc, argv, session);
  } catch (const std::bad_alloc&) {
    return static_cast<int>(session.fail({StatusCode::out_of_memory, "memory: none is left"}));
  } catch (const std::exception& error) {
    return static_cast<int>(session.fail({StatusCode::internal, error.what()}));
  }
}

// Parses one command line into a request, or an error that refuses it. Nothing is executed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct Request {
  std::string help;  // text to print instead of a run: --help, --version, or no arguments
  bool nothing_asked = false;
  std::function<Result<ExitCode>(Session&)> execute;  // the command's action; empty with `help`
};

// `words` excludes the program's name. Sets `json` if --json is among them, even if the command
// line is refused.
Result<Request> parse_command_line(std::vector<std::string> words, bool& json);

}  // namespace flashcore::cli

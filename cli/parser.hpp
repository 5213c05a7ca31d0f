// One command line: what it asks for, or the sentence that refuses it. Nothing is executed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct Request {
  std::string help;  // to be printed instead of a run: --help, --version, or nothing was asked
  bool nothing_asked = false;
  std::function<Result<ExitCode>(Session&)> execute;  // of the command; empty with `help`
};

// `words` without the program's name. Sets `json` to whether --json is among them, in a command
// line that is refused, too.
Result<Request> parse_command_line(std::vector<std::string> words, bool& json);

}  // namespace flashcore::cli

// A subcommand: name, options and action. To add one, write a file with a function that returns a
// Command, and add it to all_commands() (commands.cpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/exit_code.hpp"
#include "cli/options.hpp"
#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct Command {
  std::string name;
  std::string summary;   // one line of `flashcore --help`
  std::string examples;  // last part of the command's own --help; may be empty
  std::function<void(OptionSet&)> declare;
  // An error is printed as one sentence and becomes the exit code.
  std::function<Result<ExitCode>(Session&)> execute;
  bool takes_any_words = false;  // a stub that only says why the command is not available
};

std::vector<Command> all_commands();

Command run_command();
Command quantize_command();
Command verify_command();
Command bench_command();
Command compare_command();
Command explain_command();
Command info_command();
Command tune_command();
Command ladder_command();   // ladder.cpp or ladder_no_cuda.cpp
Command profile_command();  // profile.cpp or ladder_no_cuda.cpp
Command evolve_command();   // evolve.cpp or evolve_no_sqlite.cpp

}  // namespace flashcore::cli

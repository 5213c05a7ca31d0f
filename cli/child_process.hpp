// Programs that commands start, and what they print.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct ChildOutput {
  int exit_status = 0;  // 128 and the signal for one that a signal ended
  std::string text;     // stdout and stderr together
};

// Runs a program, found on PATH unless it has a '/', and waits for it. No shell is involved.
Result<ChildOutput> run_child(const std::vector<std::string>& words);

bool on_path(std::string_view program);
Result<std::string> this_program();  // its path

}  // namespace flashcore::cli

// Programs that commands start, and what they print.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Starts words[0], found on PATH unless it has a '/', with the rest as its arguments. No shell is
// involved; a program that cannot be started is unsupported.
Result<pid_t> start_program(const std::vector<std::string>& words,
                            const posix_spawn_file_actions_t& actions,
                            const posix_spawnattr_t* attributes = nullptr);

struct ChildOutput {
  int exit_status = 0;  // 128 and the signal for one that a signal ended
  std::string text;     // stdout and stderr together
};

// Starts a program and waits for it.
Result<ChildOutput> run_child(const std::vector<std::string>& words);

bool on_path(std::string_view program);
Result<std::string> this_program();  // its path

}  // namespace flashcore::bench

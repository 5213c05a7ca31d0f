// The exit codes; docs/command.md has the same table.
#pragma once

#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

enum class ExitCode : int {
  ok = 0,
  check_failed = 1,   // it ran, and a check or gate did not hold
  bad_input = 2,      // usage, options, files, or a malformed problem
  unsupported = 3,    // well-formed, but no kernel here computes it
  device_error = 4,   // the device failed, or memory ran out
  internal = 5,       // a bug in this program
  interrupted = 130,  // a signal ended it, as in shells
};

ExitCode exit_code(StatusCode code);

}  // namespace flashcore::cli

// Child processes, and their output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Child {
  pid_t process = 0;
  int stream = -1;  // its stdout; with `answers`, also its stdin
};

struct ChildOptions {
  bool errors = false;      // the stream includes its stderr
  bool answers = false;     // a socket instead of a pipe
  bool own_group = false;   // its own process group, to end it with all its children
  std::string log = {};     // a file for its stderr; empty: this program's stderr
  std::string folder = {};  // its working directory; empty: this program's
  // Replaces this program's environment: "NAME=value".
  std::optional<std::vector<std::string>> environment = std::nullopt;
};

// Starts words[0], found on PATH unless it has a '/', with the rest as its arguments, without a
// shell. A program that cannot be started is unsupported.
Result<Child> start_child(const std::vector<std::string>& words, const ChildOptions& options);

// Reads lines from a child, with a deadline.
class LineReader {
 public:
  // interrupt: this process got a signal; too_long: a line without an end
  enum class Event { line, silence, end, interrupt, too_long };

  LineReader(int stream, size_t longest_line) : stream_(stream), longest_line_(longest_line) {}

  Event next(std::chrono::steady_clock::time_point deadline, std::string& line);

 private:
  int stream_;
  size_t longest_line_;
  std::string pending_;
};

std::chrono::steady_clock::time_point after_seconds(double seconds);

struct ChildOutput {
  int exit_status = 0;  // 128 plus the signal if a signal ended it
  std::string text;     // stdout and stderr together
};

// Starts a program and waits for it.
Result<ChildOutput> run_child(const std::vector<std::string>& words);

struct LimitedOutput {
  int exit_status = 0;     // as in ChildOutput
  std::string text;        // stdout, and stderr with `errors`
  bool timed_out = false;  // it was killed
  bool too_long = false;   // it printed more than `most_bytes`, and was killed
};

// Starts a program, writes `input` to its stdin and waits for it; then everything that it
// started has ended.
struct Limits {
  double seconds;
  size_t most_bytes;
};
Result<LimitedOutput> run_limited(const std::vector<std::string>& words, const std::string& input,
                                  const Limits& limits, ChildOptions options);

// The folders of PATH, in order.
std::vector<std::string> path_folders();
bool on_path(std::string_view program);
Result<std::string> this_program();  // its path

}  // namespace flashcore::bench

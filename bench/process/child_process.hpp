// Child processes, and their output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// A child process with a stream from it. Both are ended with this object.
class Child {
 public:
  Child(pid_t process, int stream, bool has_group)
      : process_(process), stream_(stream), has_group_(has_group) {}
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  pid_t process() const { return process_; }
  int stream() const { return stream_; }  // -1 after it was closed
  void close_stream();

  // Stops it until resume(); returns false if it has ended.
  bool stop();
  void resume() const;

  // Waits for its end, at most `seconds`; returns whether it has ended.
  bool wait(double seconds) const;

  // Ends it, and all of its group. A child that closed its stream is about to exit and gets a
  // second for that: its own status says more than our signal.
  void end();

  // After end():
  int exit_status() const;     // 128 plus the signal if a signal ended it
  std::string ending() const;  // "exited with 3", "was ended by signal 11 (Segmentation fault)"

 private:
  pid_t process_;
  int stream_;
  bool has_group_;
  std::optional<int> status_;  // as waitpid has it, after it has been waited for
};

struct ChildOptions {
  bool errors = false;      // the stream includes its stderr
  bool answers = false;     // the stream is a socket, and also its stdin
  bool own_group = true;    // its own process group, to end it with all its children
  std::string log = {};     // a file for its stderr; empty: this program's stderr
  std::string folder = {};  // its working directory; empty: this program's
  // Replaces this program's environment: "NAME=value".
  std::optional<std::vector<std::string>> environment = std::nullopt;
};

// Starts words[0], found on PATH unless it has a '/', with the rest as its arguments, without a
// shell. A program that cannot be started is unsupported.
Result<Child> start_child(const std::vector<std::string>& words, const ChildOptions& options);

std::chrono::steady_clock::time_point after_seconds(double seconds);

// Waits until a stream has data or its other end is closed. interrupt: this process got a signal
enum class Waited { ready, silence, interrupt };
Waited wait_for(int stream, std::chrono::steady_clock::time_point deadline);

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

struct ChildOutput {
  int exit_status = 0;     // 128 plus the signal if a signal ended it
  std::string text;        // stdout, and stderr with `errors`
  bool timed_out = false;  // it was killed
  bool too_long = false;   // it printed more than `most_bytes`, and was killed
};

struct Limits {
  double seconds = 1e9;
  size_t most_bytes = std::numeric_limits<size_t>::max();
};

// Starts a program, writes `input` to its stdin and waits for it; then everything in its group has
// ended.
Result<ChildOutput> run_child(const std::vector<std::string>& words, ChildOptions options,
                              const std::string& input = {}, const Limits& limits = {});

// The folders of PATH, in order.
std::vector<std::string> path_folders();
bool on_path(std::string_view program);
Result<std::string> this_program();  // its path

}  // namespace flashcore::bench

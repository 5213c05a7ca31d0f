// A program in a process group of its own that says by lines on its stdout what it does, so that
// whoever started it can end it, with all that it started, when it says nothing for too long.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class WatchedChild {
 public:
  enum class Event { line, silence, end, interrupt };  // interrupt: a signal came to this process

  // Starts words[0], found on PATH unless it has a '/'.
  static Result<std::unique_ptr<WatchedChild>> start(const std::vector<std::string>& words);
  WatchedChild(const WatchedChild&) = delete;
  WatchedChild& operator=(const WatchedChild&) = delete;
  ~WatchedChild();  // ends the group

  // Waits for a line, at most `seconds`.
  Event next(double seconds, std::string& line);

  // Ends the group, and says how the child ended: "exited with 3", "was ended by signal 11".
  std::string finish();

 private:
  WatchedChild(pid_t child, int pipe) : child_(child), pipe_(pipe) {}
  bool wait(std::chrono::milliseconds longest, int& status) const;

  pid_t child_;
  int pipe_;
  std::string pending_;
  std::string ending_;  // once it is waited for
};

}  // namespace flashcore::bench

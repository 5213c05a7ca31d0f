// A program in its own process group that reports its progress in lines on its stdout, so that its
// parent can end it, with everything that it started, after too long a silence.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/process/child_process.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class WatchedChild {
 public:
  // Starts words[0], found on PATH unless it has a '/'.
  static Result<std::unique_ptr<WatchedChild>> start(const std::vector<std::string>& words);
  WatchedChild(const WatchedChild&) = delete;
  WatchedChild& operator=(const WatchedChild&) = delete;
  ~WatchedChild();  // ends the group

  // Waits for a line, at most `seconds`.
  LineReader::Event next(double seconds, std::string& line);

  // Ends the group, and returns how the child ended: "exited with 3", "was ended by signal 11".
  std::string finish();

 private:
  static constexpr size_t kLongestLine = size_t{1} << 20;

  explicit WatchedChild(const Child& child) : child_(child), lines_(child.stream, kLongestLine) {}
  bool wait(std::chrono::milliseconds longest, int& status) const;

  Child child_;
  LineReader lines_;
  std::string ending_;  // set after it has been waited for
};

}  // namespace flashcore::bench

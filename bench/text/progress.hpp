// A line on stderr with the current step, the progress and the elapsed time. On a terminal it
// appears after two seconds, is redrawn, and erased at the end. Otherwise it is a line of a log,
// first after five seconds and then less and less often.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace flashcore::bench {

// The line: "verify 3/24 [##------] 12 s: long f16 causal, reference". Without a total, no bar.
std::string progress_line(const std::string& task, int64_t done, int64_t total, double seconds,
                          const std::string& step);

class Progress {
 public:
  enum class Style { silent, redrawn, log };
  static constexpr std::chrono::milliseconds kDelay{2000};     // before the first line, redrawn
  static constexpr std::chrono::milliseconds kLogDelay{5000};  // before the first line of a log

  static Style usual();  // redrawn if stderr is a terminal, otherwise a log

  // `total` 0: unknown.
  Progress(Style style, std::string task, int64_t total = 0, std::FILE* stream = stderr);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void step(std::string what);  // begins a step
  void advance();               // ends one
  void interrupt();             // erases the line before other text; it reappears

 private:
  void redraw(const std::stop_token& stop);
  void log(const std::stop_token& stop);
  std::string line(double seconds) const;
  double elapsed() const;

  std::string task_;
  int64_t total_;
  std::FILE* stream_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string step_;
  int64_t done_ = 0;
  bool visible_ = false;
  std::jthread ticker_;  // last: it uses the other members
};

}  // namespace flashcore::bench

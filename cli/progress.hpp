// A line on stderr that says what is being done, how far it is and for how long; shown after two
// seconds, only on a terminal, and erased at the end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace flashcore::cli {

// The line: "verify 3/24 [##------] 12 s: long f16 causal, reference". Without a total, no bar.
std::string progress_line(const std::string& task, int64_t done, int64_t total, double seconds,
                          const std::string& step);

class Progress {
 public:
  static constexpr std::chrono::milliseconds kDelay{2000};

  // Silent unless `shown`. `total` 0: not known.
  Progress(bool shown, std::string task, int64_t total = 0, std::FILE* stream = stderr);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void step(std::string what);  // begins a step
  void advance();               // ends one
  void interrupt();             // erases the line before other text; it comes back by itself

 private:
  void tick(const std::stop_token& stop);

  std::string task_;
  int64_t total_;
  std::FILE* stream_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string step_;
  int64_t done_ = 0;
  bool visible_ = false;
  std::jthread ticker_;  // last: it uses the rest
};

}  // namespace flashcore::cli

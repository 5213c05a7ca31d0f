#include "bench/text/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/text/terminal.hpp"

namespace flashcore::bench {
namespace {

constexpr std::chrono::milliseconds kPeriod{200};
constexpr std::chrono::seconds kLongestLogPeriod{60};
constexpr size_t kWidth = 78;  // never wraps on a terminal of 80 columns

void erase_line(std::FILE* stream) { write_text(stream, "\r\x1b[K"); }

}  // namespace

std::string progress_line(const std::string& task, int64_t done, int64_t total, double seconds,
                          const std::string& step) {
  std::string line = task;
  if (total > 0) {
    constexpr int64_t kCells = 20;
    const auto filled = static_cast<size_t>(std::clamp<int64_t>(done, 0, total) * kCells / total);
    line += fmt::format(" {}/{} [{}{}]", done, total, std::string(filled, '#'),
                        std::string(kCells - filled, '-'));
  }
  line += fmt::format(" {:.0f} s", seconds);
  if (!step.empty()) line += ": " + step;
  if (line.size() > kWidth) line = line.substr(0, kWidth - 3) + "...";
  return line;
}

Progress::Style Progress::usual() { return is_terminal(stderr) ? Style::redrawn : Style::log; }

Progress::Progress(Style style, std::string task, int64_t total, std::FILE* stream)
    : task_(std::move(task)), total_(total), stream_(stream) {
  if (style == Style::silent) return;
  ticker_ = std::jthread([this, style](const std::stop_token& stop) {
    style == Style::redrawn ? redraw(stop) : log(stop);
  });
}

Progress::~Progress() {
  if (!ticker_.joinable()) return;
  ticker_.request_stop();
  ticker_.join();
  interrupt();
}

void Progress::step(std::string what) {
  const std::lock_guard lock(mutex_);
  step_ = std::move(what);
}

void Progress::advance() {
  const std::lock_guard lock(mutex_);
  ++done_;
}

void Progress::interrupt() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(visible_, false)) return;
  erase_line(stream_);
  std::fflush(stream_);
}

double Progress::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string Progress::line(double seconds) const {
  return progress_line(task_, done_, total_, seconds, step_);
}

void Progress::redraw(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  auto wait = kDelay;
  while (!wake_.wait_for(lock, stop, wait, [] { return false; })) {
    if (stop.stop_requested()) return;
    erase_line(stream_);
    write_text(stream_, line(elapsed()));
    std::fflush(stream_);
    visible_ = true;
    wait = kPeriod;
  }
}

void Progress::log(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::chrono::duration<double> wait = kLogDelay;
  while (!wake_.wait_for(lock, stop, wait, [] { return false; })) {
    if (stop.stop_requested()) return;
    const double seconds = elapsed();
    write_text(stream_, line(seconds) + "\n");
    std::fflush(stream_);
    // Prints a line each time the elapsed time has doubled: a long run has few lines.
    wait = std::min<std::chrono::duration<double>>(std::chrono::duration<double>(seconds),
                                                   kLongestLogPeriod);
  }
}

}  // namespace flashcore::bench

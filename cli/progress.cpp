#include "cli/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace flashcore::cli {
namespace {

constexpr std::chrono::milliseconds kPeriod{200};
constexpr size_t kWidth = 78;  // never wraps on a terminal of 80 columns

void erase_line(std::FILE* stream) { fmt::print(stream, "\r\x1b[K"); }

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

Progress::Progress(bool shown, std::string task, int64_t total, std::FILE* stream)
    : task_(std::move(task)), total_(total), stream_(stream) {
  if (shown) ticker_ = std::jthread([this](const std::stop_token& stop) { tick(stop); });
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

void Progress::tick(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  auto wait = kDelay;
  while (!wake_.wait_for(lock, stop, wait, [] { return false; })) {
    if (stop.stop_requested()) return;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    erase_line(stream_);
    fmt::print(stream_, "{}", progress_line(task_, done_, total_, elapsed.count(), step_));
    std::fflush(stream_);
    visible_ = true;
    wait = kPeriod;
  }
}

}  // namespace flashcore::cli

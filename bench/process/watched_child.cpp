#include "bench/process/watched_child.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "bench/process/child_process.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFarewell{1000};
constexpr std::chrono::milliseconds kLastWait{60000};

}  // namespace

Result<std::unique_ptr<WatchedChild>> WatchedChild::start(const std::vector<std::string>& words) {
  const Result<Child> child = start_child(words, {.own_group = true});
  if (!child.ok()) return child.status();
  return std::unique_ptr<WatchedChild>(new WatchedChild(*child));
}

WatchedChild::~WatchedChild() {
  (void)finish();
  ::close(child_.stream);
}

LineReader::Event WatchedChild::next(double seconds, std::string& line) {
  return lines_.next(after_seconds(seconds), line);
}

bool WatchedChild::wait(std::chrono::milliseconds longest, int& status) const {
  const auto end = Clock::now() + longest;
  for (;;) {
    const pid_t waited = ::waitpid(child_.process, &status, WNOHANG);
    if (waited == child_.process) return true;
    if ((waited < 0 && errno != EINTR) || Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string WatchedChild::finish() {
  if (!ending_.empty()) return ending_;
  // A child that closed its stdout is about to exit; its own status says more than our signal.
  pollfd closed{.fd = child_.stream, .events = 0, .revents = 0};
  int status = 0;
  bool ended = ::poll(&closed, 1, 0) != 0 && wait(kFarewell, status);
  ::kill(-child_.process, SIGKILL);
  // A driver may block a process for a while, and for ever if the device is lost.
  ended = ended || wait(kLastWait, status);
  ending_ = !ended              ? "could not be ended"
            : WIFEXITED(status) ? fmt::format("exited with {}", WEXITSTATUS(status))
                                : fmt::format("was ended by signal {}", WTERMSIG(status));
  return ending_;
}

}  // namespace flashcore::bench

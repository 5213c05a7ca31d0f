#include "bench/process/watched_child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "bench/process/child_process.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFarewell{1000};
constexpr std::chrono::milliseconds kLastWait{60000};
constexpr size_t kLongestLine = size_t{1} << 20;

}  // namespace

Result<std::unique_ptr<WatchedChild>> WatchedChild::start(const std::vector<std::string>& words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Status(StatusCode::internal, fmt::format("pipe: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const Result<pid_t> child = start_program(words, actions, &attributes);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (!child.ok()) {
    ::close(ends[0]);
    return child.status();
  }
  return std::unique_ptr<WatchedChild>(new WatchedChild(*child, ends[0]));
}

WatchedChild::~WatchedChild() {
  (void)finish();
  ::close(pipe_);
}

WatchedChild::Event WatchedChild::next(double seconds, std::string& line) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  for (;;) {
    if (const size_t newline = pending_.find('\n'); newline != std::string::npos) {
      line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return Event::line;
    }
    if (pending_.size() > kLongestLine) return Event::end;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return Event::silence;
    pollfd waiting{.fd = pipe_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    if (ready < 0) return Event::interrupt;
    if (ready == 0) continue;
    std::array<char, 4096> piece;
    const ssize_t count = ::read(pipe_, piece.data(), piece.size());
    if (count < 0) return Event::interrupt;
    if (count == 0) return Event::end;
    pending_.append(piece.data(), static_cast<size_t>(count));
  }
}

bool WatchedChild::wait(std::chrono::milliseconds longest, int& status) const {
  const auto end = Clock::now() + longest;
  for (;;) {
    const pid_t waited = ::waitpid(child_, &status, WNOHANG);
    if (waited == child_) return true;
    if ((waited < 0 && errno != EINTR) || Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string WatchedChild::finish() {
  if (!ending_.empty()) return ending_;
  // One that closed its stdout is about to exit by itself; its status says more than our signal.
  pollfd closed{.fd = pipe_, .events = 0, .revents = 0};
  int status = 0;
  bool ended = ::poll(&closed, 1, 0) != 0 && wait(kFarewell, status);
  ::kill(-child_, SIGKILL);
  // A driver may hold on to a process for a while, and for ever when the device is lost.
  ended = ended || wait(kLastWait, status);
  ending_ = !ended              ? "could not be ended"
            : WIFEXITED(status) ? fmt::format("exited with {}", WEXITSTATUS(status))
                                : fmt::format("was ended by signal {}", WTERMSIG(status));
  return ending_;
}

}  // namespace flashcore::bench

#include "bench/process/forked_call.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "problem/status.hpp"

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): gcov's, in builds that use it
extern "C" [[gnu::weak]] void __gcov_dump();

namespace flashcore::bench {
namespace {

using Clock = std::chrono::steady_clock;

void write_all(int to, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(to, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

[[noreturn]] void run_copy(const std::function<std::string()>& work, int to) {
  int status = 1;
  try {
    write_all(to, work());
    status = 0;
  } catch (...) {
  }
  if (__gcov_dump != nullptr) __gcov_dump();
  ::_exit(status);  // skips destructors of objects that belong to other threads
}

// Reads until the other end is closed; returns false if that takes longer than the deadline.
bool read_all(int from, Clock::time_point deadline, std::string& text) {
  std::array<char, 4096> piece;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd one{from, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&one, 1, static_cast<int>(left.count())) == 0) return false;
    const ssize_t got = ::read(from, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(piece.data(), static_cast<size_t>(got));
  }
}

}  // namespace

Result<std::string> call_in_copy(const std::function<std::string()>& work, double seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Status(StatusCode::internal, fmt::format("pipe: {}", std::strerror(errno)));
  }
  const pid_t copy = ::fork();
  if (copy == 0) run_copy(work, ends[1]);
  ::close(ends[1]);
  if (copy < 0) {
    ::close(ends[0]);
    return Status(StatusCode::internal, fmt::format("fork: {}", std::strerror(errno)));
  }
  std::string text;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  const bool in_time = read_all(ends[0], deadline, text);
  ::close(ends[0]);
  if (!in_time) ::kill(copy, SIGKILL);
  int status = 0;
  while (::waitpid(copy, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    return Status(StatusCode::internal, fmt::format("it did not end in {} s", seconds));
  }
  if (WIFSIGNALED(status)) {
    return Status(StatusCode::internal, fmt::format("it ended by signal {} ({})", WTERMSIG(status),
                                                    ::strsignal(WTERMSIG(status))));
  }
  if (WEXITSTATUS(status) != 0) return Status(StatusCode::internal, "it ended by an exception");
  return text;
}

}  // namespace flashcore::bench

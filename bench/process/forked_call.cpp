#include "bench/process/forked_call.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "bench/process/child_process.hpp"
#include "problem/status.hpp"

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): gcov's, in builds that use it
extern "C" [[gnu::weak]] void __gcov_dump();

namespace flashcore::bench {
namespace {

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
bool read_all(int from, std::chrono::steady_clock::time_point deadline, std::string& text) {
  std::array<char, 4096> piece;
  for (;;) {
    const Waited waited = wait_for(from, deadline);
    if (waited == Waited::interrupt) continue;
    if (waited == Waited::silence) return false;
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
  const pid_t process = ::fork();
  if (process == 0) run_copy(work, ends[1]);
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    return Status(StatusCode::internal, fmt::format("fork: {}", std::strerror(errno)));
  }
  Child copy(process, ends[0], false);
  std::string text;
  const bool in_time = read_all(copy.stream(), after_seconds(seconds), text);
  copy.end();
  if (!in_time) {
    return Status(StatusCode::internal, fmt::format("it did not end in {} s", seconds));
  }
  if (copy.exit_status() == 1) return Status(StatusCode::internal, "it ended by an exception");
  if (copy.exit_status() != 0) return Status(StatusCode::internal, "it " + copy.ending());
  return text;
}

}  // namespace flashcore::bench

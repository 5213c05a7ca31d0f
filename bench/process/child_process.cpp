#include "bench/process/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "bench/text/numbers.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

namespace {

// The actions and attributes of a start, freed with it.
class Spawning {
 public:
  Spawning() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;
  ~Spawning() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

Result<Child> start_child(const std::vector<std::string>& words, const ChildOptions& options) {
  int ends[2];  // ours and the child's; closed in children that other threads start
  const int error = options.answers ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
                                    : ::pipe2(ends, O_CLOEXEC);
  if (error != 0) {
    return Status(StatusCode::internal, fmt::format("a pipe: {}", std::strerror(errno)));
  }
  Spawning how;
  if (options.answers) posix_spawn_file_actions_adddup2(&how.actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&how.actions, ends[1], STDOUT_FILENO);
  if (options.errors) posix_spawn_file_actions_adddup2(&how.actions, ends[1], STDERR_FILENO);
  if (!options.log.empty()) {
    posix_spawn_file_actions_addopen(&how.actions, STDERR_FILENO, options.log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  if (options.own_group) {
    posix_spawnattr_setflags(&how.attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&how.attributes, 0);
  }
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  Child child{.process = 0, .stream = ends[0]};
  const int failed = ::posix_spawnp(&child.process, arguments[0], &how.actions, &how.attributes,
                                    arguments.data(), environ);
  ::close(ends[1]);
  if (failed == 0) return child;
  ::close(ends[0]);
  return unsupported("{}: could not be started: {}", words.front(), std::strerror(failed));
}

std::chrono::steady_clock::time_point after_seconds(double seconds) {
  using Clock = std::chrono::steady_clock;
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

LineReader::Event LineReader::next(std::chrono::steady_clock::time_point deadline,
                                   std::string& line) {
  for (;;) {
    if (const size_t newline = pending_.find('\n'); newline != std::string::npos) {
      line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return Event::line;
    }
    if (pending_.size() > longest_line_) return Event::too_long;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Event::silence;
    pollfd waiting{.fd = stream_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    if (ready < 0) return Event::interrupt;
    if (ready == 0) continue;
    std::array<char, 65536> piece;
    const ssize_t count = ::read(stream_, piece.data(), piece.size());
    if (count < 0) return errno == EINTR ? Event::interrupt : Event::end;
    if (count == 0) return Event::end;
    pending_.append(piece.data(), static_cast<size_t>(count));
  }
}

Result<ChildOutput> run_child(const std::vector<std::string>& words) {
  const Result<Child> child = start_child(words, {.errors = true});
  if (!child.ok()) return child.status();
  ChildOutput output;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t got = ::read(child->stream, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.text.append(piece.data(), static_cast<size_t>(got));
  }
  ::close(child->stream);
  int status = 0;
  while (::waitpid(child->process, &status, 0) < 0 && errno == EINTR) {
  }
  output.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

std::vector<std::string> path_folders() {
  const char* const path = std::getenv("PATH");
  return path == nullptr ? std::vector<std::string>() : split(path, ':');
}

bool on_path(std::string_view program) {
  const std::vector<std::string> folders = path_folders();
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return ::access((std::filesystem::path(folder) / program).c_str(), X_OK) == 0;
  });
}

Result<std::string> this_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status(StatusCode::internal, "this program: its path cannot be read");
  return path.string();
}

}  // namespace flashcore::bench

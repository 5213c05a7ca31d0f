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
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "bench/text/numbers.hpp"
#include "problem/environment.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

namespace {

// The file actions and attributes of a start, freed with it.
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

// In exec's form: a null at the end.
std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

using Clock = std::chrono::steady_clock;

constexpr double kFarewell = 1;
constexpr double kLastWait = 60;

// The time until a deadline, in milliseconds for poll: at most a second.
int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000));
}

// Writes and reads at once, so that neither side waits for the other for ever.
void exchange(int stream, const std::string& input, const Limits& limits, ChildOutput& output) {
  const auto deadline = after_seconds(limits.seconds);
  size_t written = 0;
  if (input.empty()) ::shutdown(stream, SHUT_WR);
  for (;;) {
    const bool writes = written < input.size();
    pollfd one{stream, static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0};
    const int left = milliseconds_until(deadline);
    output.timed_out = left == 0;
    if (output.timed_out) return;
    if (::poll(&one, 1, left) <= 0) continue;
    if (writes && (one.revents & (POLLOUT | POLLERR)) != 0) {
      const ssize_t sent = ::send(stream, input.data() + written, input.size() - written,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) written += static_cast<size_t>(sent);
      // A child that does not read its input may still answer.
      if (sent < 0 && errno != EAGAIN && errno != EINTR) written = input.size();
      if (written == input.size()) ::shutdown(stream, SHUT_WR);
    }
    if ((one.revents & (POLLIN | POLLHUP)) == 0) continue;
    std::array<char, 65536> piece;
    const ssize_t got = ::recv(stream, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return;
    output.text.append(piece.data(), static_cast<size_t>(got));
    output.too_long = output.text.size() > limits.most_bytes;
    if (output.too_long) return;
  }
}

}  // namespace

Child::Child(Child&& other) noexcept
    : process_(std::exchange(other.process_, 0)),
      stream_(std::exchange(other.stream_, -1)),
      has_group_(other.has_group_),
      status_(other.status_) {}

Child::~Child() {
  if (process_ != 0) end();
  close_stream();
}

void Child::close_stream() {
  if (stream_ >= 0) ::close(std::exchange(stream_, -1));
}

bool Child::stop() {
  ::kill(process_, SIGSTOP);
  int status = 0;
  while (::waitpid(process_, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
  if (!WIFSTOPPED(status)) status_ = status;
  return !status_;
}

void Child::resume() const { ::kill(process_, SIGCONT); }

bool Child::wait(double seconds) const {
  if (status_) return true;
  const auto deadline = after_seconds(seconds);
  for (;;) {
    siginfo_t state{};
    const int error =
        ::waitid(P_PID, static_cast<id_t>(process_), &state, WEXITED | WNOWAIT | WNOHANG);
    if (error == 0 && state.si_pid != 0) return true;
    if ((error != 0 && errno != EINTR) || Clock::now() >= deadline) return false;
    ::usleep(500);
  }
}

void Child::end() {
  if (status_) return;
  pollfd closed{.fd = stream_, .events = 0, .revents = 0};
  if (stream_ >= 0 && ::poll(&closed, 1, 0) != 0) (void)wait(kFarewell);
  ::kill(has_group_ ? -process_ : process_, SIGKILL);
  // A driver may block a process for a while, and for ever if the device is lost.
  int status = 0;
  if (wait(kLastWait) && ::waitpid(process_, &status, 0) == process_) status_ = status;
}

int Child::exit_status() const {
  const int status = status_.value_or(SIGKILL);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string Child::ending() const {
  if (!status_) return "could not be ended";
  if (WIFEXITED(*status_)) return fmt::format("exited with {}", WEXITSTATUS(*status_));
  const int signal = WTERMSIG(*status_);
  return fmt::format("was ended by signal {} ({})", signal, ::strsignal(signal));
}

Result<Child> start_child(const std::vector<std::string>& words, const ChildOptions& options) {
  int ends[2];  // ours and the child's; closed in children of other threads
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
  if (!options.folder.empty()) {
    posix_spawn_file_actions_addchdir_np(&how.actions, options.folder.c_str());
  }
  std::vector<std::string> copies = words;
  const std::vector<char*> arguments = pointers(copies);
  std::vector<std::string> variables = options.environment.value_or(std::vector<std::string>());
  const std::vector<char*> environment = pointers(variables);
  pid_t process = 0;
  const int failed =
      ::posix_spawnp(&process, arguments[0], &how.actions, &how.attributes, arguments.data(),
                     options.environment ? environment.data() : environ);
  ::close(ends[1]);
  if (failed == 0) return Child(process, ends[0], options.own_group);
  ::close(ends[0]);
  return unsupported("{}: could not be started: {}", words.front(), std::strerror(failed));
}

Clock::time_point after_seconds(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Waited wait_for(int stream, Clock::time_point deadline) {
  for (;;) {
    const int left = milliseconds_until(deadline);
    if (left == 0) return Waited::silence;
    pollfd one{.fd = stream, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&one, 1, left);
    if (ready != 0) return ready < 0 ? Waited::interrupt : Waited::ready;
  }
}

LineReader::Event LineReader::next(Clock::time_point deadline, std::string& line) {
  for (;;) {
    if (const size_t newline = pending_.find('\n'); newline != std::string::npos) {
      line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return Event::line;
    }
    if (pending_.size() > longest_line_) return Event::too_long;
    const Waited waited = wait_for(stream_, deadline);
    if (waited == Waited::silence) return Event::silence;
    if (waited == Waited::interrupt) return Event::interrupt;
    std::array<char, 65536> piece;
    const ssize_t count = ::read(stream_, piece.data(), piece.size());
    if (count < 0) return errno == EINTR ? Event::interrupt : Event::end;
    if (count == 0) return Event::end;
    pending_.append(piece.data(), static_cast<size_t>(count));
  }
}

Result<ChildOutput> run_child(const std::vector<std::string>& words, ChildOptions options,
                              const std::string& input, const Limits& limits) {
  options.answers = true;
  Result<Child> child = start_child(words, options);
  if (!child.ok()) return child.status();
  ChildOutput output;
  exchange(child->stream(), input, limits, output);
  // It may have closed its stdout and still be running.
  if (!output.timed_out && !output.too_long) output.timed_out = !child->wait(limits.seconds);
  child->end();
  output.exit_status = child->exit_status();
  return output;
}

std::vector<std::string> path_folders() {
  const char* const path = read_variable("PATH");
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

#include "bench/process/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "problem/status.hpp"

namespace flashcore::bench {

Result<pid_t> start_program(const std::vector<std::string>& words,
                            const posix_spawn_file_actions_t& actions,
                            const posix_spawnattr_t* attributes) {
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, attributes, arguments.data(), environ);
  if (error == 0) return child;
  return unsupported("{}: could not be started: {}", words.front(), std::strerror(error));
}

Result<ChildOutput> run_child(const std::vector<std::string>& words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {  // other threads start children, too
    return Status(StatusCode::internal, fmt::format("pipe: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  const Result<pid_t> child = start_program(words, actions);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (!child.ok()) {
    ::close(ends[0]);
    return child.status();
  }
  ChildOutput output;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t got = ::read(ends[0], piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.text.append(piece.data(), static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(*child, &status, 0) < 0 && errno == EINTR) {
  }
  output.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

bool on_path(std::string_view program) {
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const size_t end = rest.find(':');
    const std::filesystem::path file = std::filesystem::path(rest.substr(0, end)) / program;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (::access(file.c_str(), X_OK) == 0) return true;
  }
  return false;
}

Result<std::string> this_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status(StatusCode::internal, "this program: its path cannot be read");
  return path.string();
}

}  // namespace flashcore::bench

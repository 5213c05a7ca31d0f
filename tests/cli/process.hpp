// Runs the built command as a script would, and keeps its output.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/scratch.hpp"

namespace flashcore::tests {

struct Outcome {
  int exit_code = -1;  // -1: it was killed
  std::string out;
  std::string err;
};

// A process that runs during the test. `environment` is added to the test's, as "NAME=value".
class Process {
 public:
  explicit Process(std::vector<std::string> words, std::vector<std::string> environment = {}) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (const auto& [name, number] : {std::pair{"out", STDOUT_FILENO}, {"err", STDERR_FILENO}}) {
      posix_spawn_file_actions_addopen(&actions, number, scratch_.path(name).c_str(),
                                       O_WRONLY | O_CREAT, 0600);
    }
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    for (std::string& variable : environment) envp.push_back(variable.data());
    for (char** variable = environ; *variable != nullptr; ++variable) envp.push_back(*variable);
    envp.push_back(nullptr);
    const int failed =
        posix_spawn(&child_, words[0].c_str(), &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw std::runtime_error("cannot start " + words[0]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (child_ > 0) ::kill(child_, SIGKILL);
  }

  void send(int signal) const { ::kill(child_, signal); }

  Outcome wait() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, scratch_.read("out"),
            scratch_.read("err")};
  }

 private:
  Scratch scratch_;
  pid_t child_ = 0;
};

inline Outcome run_process(std::vector<std::string> words,
                           std::vector<std::string> environment = {}) {
  return Process(std::move(words), std::move(environment)).wait();
}

}  // namespace flashcore::tests

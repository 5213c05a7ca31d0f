#include "evolve/evaluate/candidate_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/process/child_process.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Finding not_loaded(LoadFailure why) {
  switch (why) {
    case LoadFailure::object:
      return {Outcome::runtime, "the shared object could not be loaded"};
    case LoadFailure::entry:
      return {Outcome::compile,
              fmt::format("there is no function '{}' with C linkage", kEntryPoint)};
    case LoadFailure::filter:
      return {Outcome::runtime, "this system has no filter of system calls (seccomp)"};
    case LoadFailure::memory:
    case LoadFailure::folder:
      break;
  }
  return {Outcome::runtime, "the candidate's process could not be set up"};
}

}  // namespace

Result<std::unique_ptr<CandidateProcess>> CandidateProcess::start(const CandidateOptions& options,
                                                                  const SharedMemory& inputs,
                                                                  const SharedMemory& outputs,
                                                                  Finding& finding) {
  const Result<int> reads = inputs.open_for_child(false);
  if (!reads.ok()) return reads.status();
  const Result<int> writes = outputs.open_for_child(true);
  if (!writes.ok()) {
    ::close(*reads);
    return writes.status();
  }
  const Result<bench::Child> child = bench::start_child(
      {options.runner, "candidate", std::to_string(*reads), std::to_string(inputs.size()),
       std::to_string(*writes), std::to_string(outputs.size()),
       std::to_string(options.memory_bytes),
       std::to_string(static_cast<uint64_t>(std::ceil(options.processor_seconds))), options.folder,
       options.object},
      {.answers = true, .own_group = true, .environment = std::vector<std::string>()});
  ::close(*reads);
  ::close(*writes);
  if (!child.ok()) return child.status();
  std::unique_ptr<CandidateProcess> process(new CandidateProcess(child->process, child->stream));
  Answer hello{};
  if (process->receive(hello, options.load_seconds, finding)) {
    if (hello.kind == AnswerKind::failed) {
      finding = not_loaded(static_cast<LoadFailure>(hello.detail));
    } else if (hello.kind == AnswerKind::ready) {
      process->isolation_ = hello.detail;
      finding = process->stop();
    } else {
      finding = {Outcome::constraints, "it answered before it was asked"};
    }
  }
  return process;
}

CandidateProcess::~CandidateProcess() {
  if (!ended_) {
    ::kill(-process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(stream_);
}

std::string CandidateProcess::ending() {
  int status = 0;
  pid_t waited = 0;
  // It closed its socket, so it is about to exit, or is killed.
  for (int i = 0; i < 200 && (waited = ::waitpid(process_, &status, WNOHANG)) == 0; ++i) {
    ::usleep(1000);
  }
  if (waited == 0) {
    ::kill(-process_, SIGKILL);
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  ended_ = true;
  return WIFEXITED(status) ? fmt::format("exited with {}", WEXITSTATUS(status))
                           : fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                                         ::strsignal(WTERMSIG(status)));
}

bool CandidateProcess::receive(Answer& answer, double seconds, Finding& finding) {
  const auto start = Clock::now();
  for (;;) {
    const double left = seconds - since(start);
    pollfd one{stream_, POLLIN, 0};
    const int ready = left <= 0 ? 0 : ::poll(&one, 1, static_cast<int>(std::ceil(left * 1e3)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      finding = {Outcome::timeout, fmt::format("no answer within {:.3g} s", seconds)};
      return false;
    }
    const ssize_t got = ::recv(stream_, &answer, sizeof answer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || (got < 0 && errno == ECONNRESET)) {
      finding = {Outcome::runtime, "the process " + ending()};
      return false;
    }
    if (got != sizeof answer) {
      finding = {Outcome::constraints, "it wrote to the socket of its process"};
      return false;
    }
    if (answer.kind != AnswerKind::forbidden) return true;
    finding = {Outcome::constraints,
               fmt::format("it made the system call {}, which candidates may not", answer.detail)};
    return false;
  }
}

Finding CandidateProcess::stop() {
  ::kill(process_, SIGSTOP);
  int status = 0;
  while (::waitpid(process_, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
  if (WIFSTOPPED(status)) return {};
  ended_ = true;
  return {Outcome::runtime, "the process ended after its answer"};
}

double CandidateProcess::processor_seconds() const {
  clockid_t clock{};
  timespec now{};
  if (::clock_getcpuclockid(process_, &clock) != 0 || ::clock_gettime(clock, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Ran CandidateProcess::run(const RunCommand& command, double limit_seconds) {
  Ran ran;
  const double before = processor_seconds();
  ::kill(process_, SIGCONT);
  if (::send(stream_, &command, sizeof command, MSG_NOSIGNAL) != sizeof command) {
    ran.finding = {Outcome::runtime, "the process " + ending()};
    return ran;
  }
  Answer answer{};
  if (!receive(answer, limit_seconds, ran.finding)) return ran;
  ran.finding = stop();
  ran.seconds = processor_seconds() - before;
  if (ran.finding.ok() && (answer.kind != AnswerKind::done || answer.nonce != command.nonce)) {
    ran.finding = {Outcome::constraints, "it answered a command that it was not given"};
  }
  return ran;
}

void CandidateProcess::describe(nlohmann::ordered_json& evidence) const {
  evidence["isolation"] = {{"network", (isolation_ & isolated_network) != 0},
                           {"files", (isolation_ & isolated_files) != 0}};
}

}  // namespace flashcore::evolve

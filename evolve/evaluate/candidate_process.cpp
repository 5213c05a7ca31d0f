#include "evolve/evaluate/candidate_process.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench/process/child_process.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

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
  Result<bench::Child> child = bench::start_child(
      {options.runner, "candidate", std::to_string(*reads), std::to_string(inputs.size()),
       std::to_string(*writes), std::to_string(outputs.size()),
       std::to_string(options.memory_bytes),
       std::to_string(static_cast<uint64_t>(std::ceil(options.processor_seconds))), options.folder,
       options.object},
      {.answers = true, .environment = std::vector<std::string>()});
  ::close(*reads);
  ::close(*writes);
  if (!child.ok()) return child.status();
  std::unique_ptr<CandidateProcess> process(new CandidateProcess(std::move(*child)));
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

// Call when it has closed its socket.
std::string CandidateProcess::ending() {
  child_.end();
  return child_.ending();
}

bool CandidateProcess::receive(Answer& answer, double seconds, Finding& finding) {
  const auto deadline = bench::after_seconds(seconds);
  for (;;) {
    const bench::Waited waited = bench::wait_for(child_.stream(), deadline);
    if (waited == bench::Waited::interrupt) continue;
    if (waited == bench::Waited::silence) {
      finding = {Outcome::timeout, fmt::format("no answer within {:.3g} s", seconds)};
      return false;
    }
    const ssize_t got = ::recv(child_.stream(), &answer, sizeof answer, 0);
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
  if (child_.stop()) return {};
  return {Outcome::runtime, "the process ended after its answer"};
}

double CandidateProcess::processor_seconds() const {
  clockid_t clock{};
  timespec now{};
  if (::clock_getcpuclockid(child_.process(), &clock) != 0 || ::clock_gettime(clock, &now) != 0)
    return 0;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Ran CandidateProcess::run(const RunCommand& command, double limit_seconds) {
  Ran ran;
  const double before = processor_seconds();
  child_.resume();
  if (::send(child_.stream(), &command, sizeof command, MSG_NOSIGNAL) != sizeof command) {
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

#include "evolve/evaluate/gpu_candidate.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "problem/environment.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

constexpr double kContextSeconds = 60;

// Keeps this process's way to find the driver and to choose the GPU.
std::vector<std::string> environment() {
  std::vector<std::string> kept;
  for (const char* const name : {"PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"}) {
    if (const char* const value = read_variable(name))
      kept.push_back(fmt::format("{}={}", name, value));
  }
  return kept;
}

Outcome outcome_of(GpuAnswerKind kind) {
  switch (kind) {
    case GpuAnswerKind::no_entry:
    case GpuAnswerKind::wrong_signature:
    case GpuAnswerKind::wrong_launch:
      return Outcome::compile;
    case GpuAnswerKind::too_large:
      return Outcome::resources;
    case GpuAnswerKind::fault:
      return Outcome::runtime;
    case GpuAnswerKind::wrote_inputs:
      return Outcome::correctness;
    default:
      return Outcome::constraints;
  }
}

Status gone(const std::string& why) {
  return Status(StatusCode::device_error, "the process of GPU candidates: " + why);
}

}  // namespace

Result<std::unique_ptr<GpuCandidate>> GpuCandidate::start(const std::string& runner) {
  Result<bench::Child> child =
      bench::start_child({runner, "candidate"}, {.answers = true, .environment = environment()});
  if (!child.ok()) return child.status();
  return std::unique_ptr<GpuCandidate>(new GpuCandidate(std::move(*child)));
}

// Receives an answer of one kind. Anything else is a finding; so is silence.
bool GpuCandidate::receive(GpuAnswerKind wanted, double seconds, GpuAnswer& answer,
                           Finding& finding) {
  const auto deadline = bench::after_seconds(seconds);
  auto* at = reinterpret_cast<char*>(&answer);
  size_t left = sizeof answer;
  while (left > 0) {
    const bench::Waited waited = bench::wait_for(child_.stream(), deadline);
    if (waited == bench::Waited::interrupt) continue;
    if (waited == bench::Waited::silence) {
      finding = {Outcome::timeout, fmt::format("no answer within {:.3g} s", seconds)};
      return false;
    }
    const ssize_t got = ::recv(child_.stream(), at, left, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      finding = {Outcome::runtime, "the process that launches it ended"};
      return false;
    }
    at += got;
    left -= static_cast<size_t>(got);
  }
  if (answer.kind == wanted) return true;
  answer.text[sizeof answer.text - 1] = '\0';
  finding = {outcome_of(answer.kind), bench::printable(answer.text)};
  return false;
}

Status GpuCandidate::wait() {
  if (is_ready_) return {};
  Finding finding;
  if (!receive(GpuAnswerKind::ready, kContextSeconds, hello_, finding)) {
    if (hello_.kind == GpuAnswerKind::broken) return unsupported("GPU: {}", finding.sentence);
    return gone(finding.sentence);
  }
  is_ready_ = true;
  return {};
}

Status GpuCandidate::load(const Task& task, const std::string& text, const CallMemory& memory,
                          Finding& finding) {
  FLASHCORE_RETURN_IF_ERROR(wait());
  const Result<int> reads = memory.inputs().open_for_child(false);
  if (!reads.ok()) return reads.status();
  const Result<int> writes = memory.outputs().open_for_child(true);
  if (!writes.ok()) {
    ::close(*reads);
    return writes.status();
  }
  const int memories[2] = {*reads, *writes};
  GpuLoad load{.input_bytes = memory.inputs().size(),
               .output_bytes = memory.outputs().size(),
               .workspace_bytes = static_cast<uint64_t>(task.budgets.memory_mib) << 20,
               .type = static_cast<uint32_t>(task.dtype),
               .text_bytes = static_cast<uint32_t>(text.size())};
  iovec pieces[2] = {{&load, sizeof load}, {const_cast<char*>(text.data()), text.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof memories)] = {};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof memories);
  std::memcpy(CMSG_DATA(rights), memories, sizeof memories);
  const bool sent = ::sendmsg(child_.stream(), &message, MSG_NOSIGNAL) == sizeof load &&
                    ::send(child_.stream(), text.data(), text.size(), MSG_NOSIGNAL) ==
                        static_cast<ssize_t>(text.size());
  ::close(*reads);
  ::close(*writes);
  if (!sent) return gone("it has ended");
  if (receive(GpuAnswerKind::loaded, task.budgets.call_seconds + kContextSeconds, loaded_,
              finding)) {
    return {};
  }
  if (loaded_.kind == GpuAnswerKind::broken) return gone(finding.sentence);
  return {};
}

Ran GpuCandidate::run(const RunCommand& command, double limit_seconds) {
  Ran ran;
  if (::send(child_.stream(), &command, sizeof command, MSG_NOSIGNAL) != sizeof command) {
    ran.finding = {Outcome::runtime, "the process that launches it ended"};
    return ran;
  }
  if (!receive(GpuAnswerKind::prepared, limit_seconds, prepared_, ran.finding)) return ran;
  const auto start = std::chrono::steady_clock::now();
  (void)!::send(child_.stream(), &command.nonce, sizeof command.nonce, MSG_NOSIGNAL);
  GpuAnswer launched{}, done{};
  if (!receive(GpuAnswerKind::launched, limit_seconds, launched, ran.finding)) return ran;
  ran.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ran.seconds = launched.seconds;
  if (!receive(GpuAnswerKind::done, limit_seconds, done, ran.finding)) return ran;
  if (launched.nonce != command.nonce || done.nonce != command.nonce) {
    ran.finding = {Outcome::constraints, "it answered a command that it was not given"};
  }
  return ran;
}

void GpuCandidate::describe(nlohmann::ordered_json& evidence) const {
  evidence["isolation"] = {{"network", (hello_.isolation & isolated_network) != 0},
                           {"files", false}};
  evidence["launch"] = {{"registers", loaded_.registers},
                        {"local_bytes", loaded_.local_bytes},
                        {"static_shared_bytes", loaded_.shared_bytes},
                        {"dynamic_shared_bytes", prepared_.dynamic_bytes},
                        {"blocks", prepared_.blocks},
                        {"threads", prepared_.threads}};
}

}  // namespace flashcore::evolve

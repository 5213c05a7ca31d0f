#include "bench/peers/peer_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr size_t kLargestAnswer = size_t{1} << 24;
constexpr std::chrono::seconds kFarewell{3};

// The last line of what it printed, for an error.
std::string last_words(const std::string& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return printable(last.substr(0, 200));
}

}  // namespace

Result<std::unique_ptr<PeerProcess>> PeerProcess::start(const std::vector<std::string>& words,
                                                        const std::string& log) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Status(StatusCode::internal, fmt::format("socketpair: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const Result<pid_t> child = start_program(words, actions);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (!child.ok()) {
    ::close(ends[0]);
    return child.status();
  }
  return std::unique_ptr<PeerProcess>(new PeerProcess(*child, ends[0], log));
}

PeerProcess::~PeerProcess() {
  if (socket_ >= 0) ::close(socket_);
  const auto end = Clock::now() + kFarewell;
  while (Clock::now() < end) {
    if (::waitpid(child_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ::kill(child_, SIGKILL);
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<Json> PeerProcess::ask(const Json& request, double seconds) {
  if (socket_ < 0) return unsupported("peers: their process has ended");
  FLASHCORE_RETURN_IF_ERROR(send(request.dump() + "\n"));
  const Result<std::string> line = receive(seconds);
  if (!line.ok()) return line.status();
  Json answer = Json::parse(*line, nullptr, false);
  if (!answer.is_object()) return lost("answered with something other than a JSON object");
  if (answer.contains("error")) {
    return unsupported("{}", printable(answer["error"].dump(-1, ' ', true).substr(0, 300)));
  }
  return answer;
}

Status PeerProcess::send(const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return lost("ended");
    sent += static_cast<size_t>(count);
  }
  return {};
}

Result<std::string> PeerProcess::receive(double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  for (;;) {
    if (const size_t newline = pending_.find('\n'); newline != std::string::npos) {
      std::string line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return line;
    }
    if (pending_.size() > kLargestAnswer) return lost("answered without end");
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return lost(fmt::format("did not answer in {:.0f} s", seconds));
    pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    if (ready <= 0) continue;  // a timeout or a signal: the clock above decides
    std::array<char, 65536> piece;
    const ssize_t count = ::read(socket_, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return lost("ended");
    pending_.append(piece.data(), static_cast<size_t>(count));
  }
}

Status PeerProcess::lost(const std::string& why) {
  ::close(std::exchange(socket_, -1));
  ::kill(child_, SIGKILL);
  const std::string words = last_words(log_);
  return unsupported("peers: their process {}{}{}", why, words.empty() ? "" : ": ", words);
}

}  // namespace flashcore::bench

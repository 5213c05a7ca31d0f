#include "bench/peers/peer_process.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGoodbyeSeconds = 3;

// The last line of its output, for an error message.
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
  Result<Child> child = start_child(words, {.answers = true, .own_group = false, .log = log});
  if (!child.ok()) return child.status();
  return std::unique_ptr<PeerProcess>(new PeerProcess(std::move(*child), log));
}

PeerProcess::~PeerProcess() {
  child_.close_stream();
  (void)child_.wait(kGoodbyeSeconds);
}

Result<Json> PeerProcess::ask(const Json& request, double seconds) {
  if (!alive()) return unsupported("peers: their process has ended");
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
    const ssize_t count =
        ::send(child_.stream(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return lost("ended");
    sent += static_cast<size_t>(count);
  }
  return {};
}

Result<std::string> PeerProcess::receive(double seconds) {
  const auto deadline = after_seconds(seconds);
  for (;;) {
    std::string line;
    switch (lines_.next(deadline, line)) {
      case LineReader::Event::line:
        return line;
      case LineReader::Event::silence:
        return lost(fmt::format("did not answer in {:.0f} s", seconds));
      case LineReader::Event::too_long:
        return lost("answered without end");
      case LineReader::Event::end:
        return lost("ended");
      case LineReader::Event::interrupt:
        break;
    }
  }
}

Status PeerProcess::lost(const std::string& why) {
  child_.close_stream();
  child_.end();
  const std::string words = last_words(log_);
  return unsupported("peers: their process {}{}{}", why, words.empty() ? "" : ": ", words);
}

}  // namespace flashcore::bench

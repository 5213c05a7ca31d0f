// A helper program that runs beside this one and answers requests: one line of JSON each way.
#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class PeerProcess {
 public:
  // Starts words[0], found on PATH unless it has a '/'; its stderr goes to the file `log`.
  static Result<std::unique_ptr<PeerProcess>> start(const std::vector<std::string>& words,
                                                    const std::string& log);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();  // closes its stdin, waits a little, then ends it

  // An answer {"error": sentence} is a status; so are silence past `seconds` and an early end.
  // After the latter two, every request fails.
  Result<nlohmann::ordered_json> ask(const nlohmann::ordered_json& request, double seconds);

  bool alive() const { return socket_ >= 0; }

 private:
  PeerProcess(pid_t child, int socket, std::string log)
      : child_(child), socket_(socket), log_(std::move(log)) {}
  Status send(const std::string& line);
  Result<std::string> receive(double seconds);
  Status lost(const std::string& why);

  pid_t child_;
  int socket_;  // -1 once it is lost
  std::string log_;
  std::string pending_;
};

}  // namespace flashcore::bench

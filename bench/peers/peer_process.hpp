// A helper process that answers requests: one line of JSON each way.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/process/child_process.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class PeerProcess {
 public:
  // Starts words[0], found on PATH unless it has a '/'; its stderr goes to the file `log`.
  static Result<std::unique_ptr<PeerProcess>> start(const std::vector<std::string>& words,
                                                    const std::string& log);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();  // closes its stdin, waits briefly, then ends it

  // An answer {"error": sentence} becomes a status; so do `seconds` of silence and an early end.
  // After the latter two, every request fails.
  Result<nlohmann::ordered_json> ask(const nlohmann::ordered_json& request, double seconds);

  bool alive() const { return child_.stream() >= 0; }

 private:
  static constexpr size_t kLargestAnswer = size_t{1} << 24;

  PeerProcess(Child child, std::string log)
      : child_(std::move(child)), log_(std::move(log)), lines_(child_.stream(), kLargestAnswer) {}
  Status send(const std::string& line);
  Result<std::string> receive(double seconds);
  Status lost(const std::string& why);

  Child child_;  // without a stream after it is lost
  std::string log_;
  LineReader lines_;
};

}  // namespace flashcore::bench

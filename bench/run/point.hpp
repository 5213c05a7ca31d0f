// One implementation on one case of `flashcore bench`: what it is, whether it is right, how long it
// takes.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/peers/peers.hpp"
#include "bench/time/timing.hpp"

namespace flashcore::bench {

struct Point {
  enum class Kind { kernel, peer_process, native_peer };

  std::string name, version;
  std::string fingerprint;  // of what a kernel ran (plan/fingerprints.hpp); empty before it did
  Kind kind = Kind::kernel;
  bool of_gradients = false;
  bool is_default = false;  // of candidates: what runs without a tuning table
  double trial = 0;         // of candidates: seconds of the first round; 0 before it
  std::string refusal, error;
  std::optional<Verdict> verdict;
  TimedCall call;                                  // of what runs in this process
  std::map<std::string, Timing> times;             // by protocol
  std::map<std::string, std::vector<double>> p50;  // of each round
  double host_seconds = 0;
  nlohmann::ordered_json launches;  // of a call; null unless they were asked for

  bool is_peer() const { return kind != Kind::kernel; }
  bool timed() const {
    if (!refusal.empty() || !error.empty() || !verdict) return false;
    if (!is_peer()) return verdict->passed;
    return of_gradients ? gradients_may_be_timed(*verdict) : may_be_timed(*verdict);
  }
};

}  // namespace flashcore::bench

// One implementation on one case of `flashcore bench`: its identity, whether its result is right,
// and its times.
#pragma once

#include <cstddef>
#include <cstdint>
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
  std::string fingerprint;  // hash of the code that ran (plan/fingerprints.hpp); or empty
  Kind kind = Kind::kernel;
  bool of_gradients = false;
  bool is_default = false;  // runs where no kernel, and no tuning table, is asked for
  double trial = 0;         // candidates: seconds of the first round; 0 before it
  std::string refusal, error;
  std::optional<Verdict> verdict;
  TimedCall call;                                  // for implementations in this process
  std::map<std::string, Timing> times;             // protocol to timing
  std::map<std::string, std::vector<double>> p50;  // per round
  double host_seconds = 0;
  size_t workspace_bytes = 0;
  int64_t resident_growth = 0;      // on a CPU: resident memory that the first call needed
  nlohmann::ordered_json launches;  // one call's launches; null unless requested

  bool is_peer() const { return kind != Kind::kernel; }
  bool timed() const {
    if (!refusal.empty() || !error.empty() || !verdict) return false;
    if (!is_peer()) return verdict->passed;
    return of_gradients ? gradients_may_be_timed(*verdict) : may_be_timed(*verdict);
  }
};

}  // namespace flashcore::bench

// One case of `flashcore bench`: the gates of every implementation, then all of them in turns.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/peers/native_peer.hpp"
#include "bench/peers/peers.hpp"
#include "bench/run/point.hpp"
#include "bench/run/run.hpp"
#include "bench/run/workload.hpp"
#include "bench/time/meter.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// What all cases of a run share.
struct CaseSetting {
  const RunOptions& options;
  const PlanOptions& plan;
  Meter& meter;
  const std::vector<Protocol>& protocols;
  const nlohmann::ordered_json& ceilings;
  Peers* peers;  // may be null
  std::vector<std::unique_ptr<NativePeer>>& native_peers;
  const TiledInputs& inputs;  // of the case's type
  std::function<void(Step)> step;
  // Why an implementation is not asked on the case again; empty for all others.
  std::function<std::string(const Subject&, const std::string& implementation)> lost;
  // Of a run that tunes: then the case ends after the step that it is at.
  std::function<bool()> out_of_time;
};

// The case with its rows, ready for evidence, or null where it ran out of time; `notes` gets what
// concerns more than a row. A status means that the device failed, or that the case did not fit into
// memory.
Result<nlohmann::ordered_json> measure_case(const CaseSetting& setting, const Subject& subject,
                                            nlohmann::ordered_json& notes);

}  // namespace flashcore::bench

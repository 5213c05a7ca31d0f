// One case of `flashcore bench`: gates every implementation, then times all of them in turns.
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

// Shared by all cases of a run.
struct CaseSetting {
  const RunOptions& options;
  const PlanOptions& plan;
  Meter& meter;
  const std::vector<Protocol>& protocols;
  const nlohmann::ordered_json& ceilings;
  Peers* peers;  // may be null
  std::vector<std::unique_ptr<NativePeer>>& native_peers;
  const TiledInputs& inputs;  // for the case's type
  std::function<void(Step)> step;
  // Why an implementation is not run on the case again; empty for all others.
  std::function<std::string(const Subject&, const std::string& implementation)> lost;
  // Only in tuning runs: true ends the case after the current step.
  std::function<bool()> out_of_time;
};

// Returns the case with its rows, as evidence, or null if it ran out of time; `notes` gets
// remarks on more than one row. An error means that the device failed, or that the case did not
// fit into memory.
Result<nlohmann::ordered_json> measure_case(const CaseSetting& setting, const Subject& subject,
                                            nlohmann::ordered_json& notes);

}  // namespace flashcore::bench

// One case of `flashcore bench`: the gates of every implementation, then all of them in turns.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/meter.hpp"
#include "bench/peers/native_peer.hpp"
#include "cli/bench_peers.hpp"
#include "cli/bench_point.hpp"
#include "cli/bench_run.hpp"
#include "cli/bench_workload.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

// What all cases of a run share.
struct BenchSetting {
  const BenchOptions& options;
  const PlanOptions& plan;
  bench::Meter& meter;
  const std::vector<bench::Protocol>& protocols;
  const nlohmann::ordered_json& ceilings;
  Peers* peers;  // may be null
  std::vector<std::unique_ptr<bench::NativePeer>>& native_peers;
  const bench::TiledInputs& inputs;  // of the case's type
  std::function<void(BenchStep)> step;
  // Why an implementation is not asked on the case again; empty for all others.
  std::function<std::string(const BenchSubject&, const std::string& implementation)> lost;
};

// The case with its rows, ready for evidence; `notes` gets what concerns more than a row. A status
// means that the device failed, or that the case did not fit into memory.
Result<nlohmann::ordered_json> measure_case(const BenchSetting& setting,
                                            const BenchSubject& subject,
                                            nlohmann::ordered_json& notes);

}  // namespace flashcore::cli

#include "cli/ladder_peers.hpp"

#include <memory>

#include "bench/peers/peers.hpp"
#include "bench/run/workload.hpp"
#include "bench/tensors/tiled_inputs.hpp"
#include "bench/time/meter.hpp"
#include "bench/time/timing.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kShortCall = 1e-4;

// One peer on one shape, by every protocol; an error is its own.
Json peer_json(bench::Peers& peers, const bench::PeerVerdict& peer, const bench::Meter& meter) {
  Json row = {{"backend", peer.name}, {"version", peer.version}, {"passed", peer.verdict.passed}};
  if (!peer.error.empty()) {
    row["error"] = peer.error;
    return row;
  }
  row["max_scaled_error"] = peer.verdict.max_scaled_error;
  if (!bench::may_be_timed(peer.verdict)) return row;
  bool is_short = true;  // only then does a call's cost on the host matter
  for (bench::Protocol protocol : meter.protocols()) {
    protocol.rounds = 1;
    const Result<bench::Timing> timing = peers.time(peer.name, meter, protocol);
    if (!timing.ok()) {
      row["error"] = timing.status().message();
      return row;
    }
    row[protocol.name] = bench::timing_evidence(*timing);
    is_short = is_short && timing->p50 < kShortCall;
  }
  if (!is_short) return row;
  if (const Result<double> host = peers.host_seconds(peer.name); host.ok()) {
    row["host_us"] = *host * 1e6;
  }
  return row;
}

}  // namespace

Status time_ladder_peers(const std::string& choice, const std::vector<bench::Case>& shapes,
                         Device device, const std::function<void(const std::string&)>& step,
                         Json& found) {
  const Result<std::unique_ptr<bench::Meter>> meter = bench::make_meter(device, 0);
  if (!meter.ok()) return meter.status();
  const Result<std::unique_ptr<bench::Peers>> peers =
      bench::Peers::start(bench::peers_script(choice), device, 0, "flash,cudnn,efficient,math");
  if (!peers.ok()) return peers.status();
  FLASHCORE_RETURN_IF_ERROR((*peers)->greet());
  PlanOptions plan;
  plan.device = device;
  const bench::TiledInputs inputs(DType::f16);
  Json all = (*peers)->versions();
  all["shapes"] = Json::object();
  for (const bench::Case& shape : shapes) {
    step("peers: " + shape.name);
    const Result<std::unique_ptr<bench::TiledWorkload>> workload =
        bench::TiledWorkload::make(bench::to_problem(shape), inputs, plan);
    if (!workload.ok()) return workload.status();
    const Result<std::vector<bench::PeerVerdict>> verdicts =
        (*peers)->begin(shape, "five", inputs, (*workload)->reference());
    if (!verdicts.ok()) return verdicts.status();
    Json& rows = all["shapes"][shape.name] = Json::array();
    for (const bench::PeerVerdict& peer : *verdicts)
      rows.push_back(peer_json(**peers, peer, **meter));
    found = all;
  }
  return {};
}

}  // namespace flashcore::cli

#include <nlohmann/json.hpp>

#include "bench/device/cuda_environment.hpp"
#include "bench/time/cuda_ceilings.hpp"
#include "bench/time/cuda_timer.hpp"
#include "bench/time/launches.hpp"
#include "bench/time/meter.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRounds = 2;        // sustained protocol, alternating with peers
constexpr int kTuningRounds = 5;  // alternating with other candidates; the first is a trial

CudaProtocol cuda_protocol(const Protocol& protocol) {
  CudaProtocol out = protocol.name == kIdleProtocol.name     ? kIdleProtocol
                     : protocol.name == kTuningProtocol.name ? kTuningProtocol
                                                             : kSustainedProtocol;
  out.samples = (out.samples + protocol.rounds - 1) / protocol.rounds;
  return out;
}

class CudaMeter final : public Meter {
 public:
  CudaMeter(int32_t index, std::unique_ptr<CudaTimer> timer)
      : index_(index), timer_(std::move(timer)) {}

  std::vector<Protocol> protocols() const override {
    return {
        {.name = kSustainedProtocol.name,
         .text = "device time: a graph of about 5 ms of calls, points back to back, two rounds "
                 "in turns with the peers, each 15 warm-up replays and 10 that count",
         .rounds = kRounds},
        {.name = kIdleProtocol.name,
         .text = "device time: the same graph after a pause of 0.3 s and 3 warm-up replays, one "
                 "round of 20",
         .rounds = 1}};
  }

  Protocol tuning_protocol() const override {
    return {.name = kTuningProtocol.name,
            .text =
                "device time: a graph of about 2 ms of calls; after a trial four rounds in turns "
                "with the other candidates, each 3 warm-up replays and 5 that count; those more "
                "than 30% behind in the trial sit out",
            .rounds = kTuningRounds};
  }

  Result<Timing> time(const TimedCall& call, const Protocol& protocol) override {
    return timer_->time(call, cuda_protocol(protocol));
  }

  Result<double> host_seconds(const TimedCall& call) override { return timer_->host_seconds(call); }

  Result<Json> launches(const TimedCall& call) override {
    const Result<std::vector<Launch>> launches = launches_of(timer_->stream(), call);
    if (!launches.ok()) return launches.status();
    Json list = Json::array();
    for (const Launch& launch : *launches) {
      list.push_back({{"kernel", launch.kernel},
                      {"blocks", launch.blocks},
                      {"threads", launch.threads},
                      {"registers", launch.registers},
                      {"local_bytes", launch.local_bytes},
                      {"shared_bytes", launch.shared()},
                      {"blocks_per_multiprocessor", launch.blocks_per_multiprocessor}});
    }
    return list;
  }

  Json settings(const Protocol& protocol) const override {
    const CudaProtocol numbers = cuda_protocol(protocol);
    return {{"name", protocol.name},
            {"graph_seconds", numbers.graph_seconds},
            {"warm_ups", numbers.warm_ups},
            {"samples", numbers.samples},
            {"pause_seconds", numbers.pause_seconds}};
  }

  Json ceilings(const Protocol& protocol, const std::set<DType>& dtypes, Json& notes) override {
    return cuda_ceilings(*timer_, cuda_protocol(protocol), dtypes, notes);
  }

  Json environment() const override {
    Json device = cuda_environment(index_);
    device["kind"] = "cuda";
    return device;
  }
  Json state() const override { return cuda_state(index_); }

 private:
  int32_t index_;
  std::unique_ptr<CudaTimer> timer_;
};

}  // namespace

Result<std::unique_ptr<Meter>> make_cuda_meter(int32_t index) {
  Result<std::unique_ptr<CudaTimer>> timer = CudaTimer::create(index, kSustainedProtocol);
  if (!timer.ok()) return timer.status();
  return std::unique_ptr<Meter>(std::make_unique<CudaMeter>(index, std::move(*timer)));
}

}  // namespace flashcore::bench

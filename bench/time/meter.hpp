// The device functions of a report: timing of points, the device's limits, and its description. One
// implementation for the CPU, one for CUDA.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class Meter {
 public:
  virtual ~Meter() = default;

  // The headline protocol comes first.
  virtual std::vector<Protocol> protocols() const = 0;

  // Short rounds of many candidates in turns; few candidates are near the fastest.
  virtual Protocol tuning_protocol() const = 0;

  // Times one round of a point, by one of these protocols.
  virtual Result<Timing> time(const TimedCall& call, const Protocol& protocol) = 0;

  // Wall seconds per call on the host, asynchronous on a GPU; 0 if that is the time itself.
  virtual Result<double> host_seconds(const TimedCall& call) = 0;

  // The launches of one call: [{"kernel", "blocks", "threads", "registers", ...}]; empty on a CPU.
  virtual Result<nlohmann::ordered_json> launches(const TimedCall& call) = 0;

  // The protocol as numbers for a peer's process: tools/peers_torch.py reads them.
  virtual nlohmann::ordered_json settings(const Protocol& protocol) const = 0;

  // {"empty_kernel": timing, "copy_bytes_per_second", "matrix_product": {dtype: {"tflops", ...}}};
  // what cannot be measured is left out, and `notes` says why.
  virtual nlohmann::ordered_json ceilings(const Protocol& protocol, const std::set<DType>& dtypes,
                                          nlohmann::ordered_json& notes) = 0;

  virtual nlohmann::ordered_json environment() const = 0;  // the device, its driver and limits
  virtual nlohmann::ordered_json state() const = 0;        // clock and power now; may be empty
};

// `threads` 0: all. The CUDA one is defined in meter_cuda.cpp or no_cuda.cpp.
Result<std::unique_ptr<Meter>> make_meter(Device device, int threads);
Result<std::unique_ptr<Meter>> make_cuda_meter(int32_t index);

}  // namespace flashcore::bench

// Device time of one call: a CUDA graph of calls back to back, events around its replays.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct CudaProtocol {
  const char* name;
  double graph_seconds;  // target length of a graph, or one call
  int warm_ups;          // replays before the samples
  int samples;           // timed replays
  double pause_seconds;  // before the warm-up
};

inline constexpr CudaProtocol kStandardProtocol{"standard", 2.5e-3, 5, 20, 0};
// No pauses between points, so that temperature and power limit are as in real work.
inline constexpr CudaProtocol kSustainedProtocol{"sustained", 5e-3, 15, 20, 0};
inline constexpr CudaProtocol kIdleProtocol{"idle", 5e-3, 3, 20, 0.3};
inline constexpr CudaProtocol kTuningProtocol{"tuning", 2e-3, 3, 25, 0};

class CudaTimer final : public Timer {
 public:
  static Result<std::unique_ptr<CudaTimer>> create(
      int32_t index, const CudaProtocol& protocol = kStandardProtocol);
  ~CudaTimer() override;
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  std::string protocol() const override;
  Result<Timing> time(const TimedCall& call) override { return time(call, protocol_); }
  Result<Timing> time(const TimedCall& call, const CudaProtocol& protocol);

  // Wall seconds per call on the host: an eager loop with one synchronisation at its end.
  Result<double> host_seconds(const TimedCall& call);

  int32_t index() const { return index_; }  // the GPU's index
  cudaStream_t stream() const { return stream_; }

 private:
  CudaTimer(int32_t index, const CudaProtocol& protocol) : index_(index), protocol_(protocol) {}
  Status open();
  Result<double> one_call_seconds(const TimedCall& call);

  int32_t index_;
  CudaProtocol protocol_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace flashcore::bench

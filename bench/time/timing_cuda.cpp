#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "bench/device/cuda_error.hpp"
#include "bench/time/captured_graph.hpp"
#include "bench/time/cuda_timer.hpp"

namespace flashcore::bench {
namespace {

constexpr int64_t kMostCalls = 4000;      // per graph
constexpr double kSlowCallSeconds = 0.1;  // above this, few warm-ups are enough
constexpr int kSlowCallReplays = 5;

}  // namespace

Result<std::unique_ptr<CudaTimer>> CudaTimer::create(int32_t index, const CudaProtocol& protocol) {
  std::unique_ptr<CudaTimer> timer(new CudaTimer(index, protocol));
  if (Status status = timer->open(); !status.ok()) return status;
  return timer;
}

Status CudaTimer::open() {
  FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaSetDevice(index_), "choosing a GPU"));
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"));
  FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&begin_), "creating an event"));
  return cuda_status(cudaEventCreate(&end_), "creating an event");
}

CudaTimer::~CudaTimer() {
  if (end_ != nullptr) (void)cudaEventDestroy(end_);
  if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

std::string CudaTimer::protocol() const {
  return fmt::format(
      "device time, {}: graph of about {:.1f} ms of calls, {} warm-up replays, quantiles of {}",
      protocol_.name, protocol_.graph_seconds * 1e3, protocol_.warm_ups, protocol_.samples);
}

// An upper bound for a call after the first; graphs are sized by it.
Result<double> CudaTimer::one_call_seconds(const TimedCall& call) {
  FLASHCORE_RETURN_IF_ERROR(call(Stream{stream_}));
  FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream_), "the first call"));
  Result<CapturedGraph> graph = CapturedGraph::capture(stream_, call, 4);
  if (!graph.ok()) return graph.status();
  FLASHCORE_RETURN_IF_ERROR(graph->instantiate());
  float milliseconds = 0;
  for (int replay = 0; replay < 2; ++replay) {
    (void)cudaEventRecord(begin_, stream_);
    FLASHCORE_RETURN_IF_ERROR(graph->launch(stream_));
    (void)cudaEventRecord(end_, stream_);
    FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaEventSynchronize(end_), "a replay"));
    FLASHCORE_RETURN_IF_ERROR(
        cuda_status(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing a replay"));
  }
  return static_cast<double>(milliseconds) * 1e-3 / 4;
}

Result<Timing> CudaTimer::time(const TimedCall& call, const CudaProtocol& protocol) {
  const Result<double> estimate = one_call_seconds(call);
  if (!estimate.ok()) return estimate.status();
  Timing timing;
  const double wanted = std::ceil(protocol.graph_seconds / std::max(*estimate, 1e-7));
  timing.calls_per_sample = std::clamp<int64_t>(static_cast<int64_t>(wanted), 1, kMostCalls);
  Result<CapturedGraph> graph = CapturedGraph::capture(stream_, call, timing.calls_per_sample);
  if (!graph.ok()) return graph.status();
  FLASHCORE_RETURN_IF_ERROR(graph->instantiate());

  if (protocol.pause_seconds > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(protocol.pause_seconds));
  }
  const bool slow = *estimate > kSlowCallSeconds;
  const int warm_ups = slow ? std::min(protocol.warm_ups, 1) : protocol.warm_ups;
  const int samples = slow ? std::min(protocol.samples, kSlowCallReplays) : protocol.samples;
  for (int i = 0; i < warm_ups; ++i) FLASHCORE_RETURN_IF_ERROR(graph->launch(stream_));
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) {
    (void)cudaEventRecord(begin_, stream_);
    FLASHCORE_RETURN_IF_ERROR(graph->launch(stream_));
    (void)cudaEventRecord(end_, stream_);
    FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaEventSynchronize(end_), "a replay"));
    float milliseconds = 0;
    FLASHCORE_RETURN_IF_ERROR(
        cuda_status(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing a replay"));
    seconds.push_back(static_cast<double>(milliseconds) * 1e-3 /
                      static_cast<double>(timing.calls_per_sample));
  }
  timing.sample_seconds = std::move(seconds);
  summarise(timing);
  return timing;
}

Result<double> CudaTimer::host_seconds(const TimedCall& call) {
  constexpr int kCalls = 300;
  double best = 0;
  for (int round = 0; round < 3; ++round) {  // the first warms up
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) FLASHCORE_RETURN_IF_ERROR(call(Stream{stream_}));
    FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream_), "an eager loop"));
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls;
    best = round < 2 ? seconds : std::min(best, seconds);
  }
  return best;
}

Result<std::unique_ptr<Timer>> make_cuda_timer(int32_t index) {
  Result<std::unique_ptr<CudaTimer>> timer = CudaTimer::create(index);
  if (!timer.ok()) return timer.status();
  return std::unique_ptr<Timer>(std::move(*timer));
}

}  // namespace flashcore::bench

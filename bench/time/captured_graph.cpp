#include "bench/time/captured_graph.hpp"

#include <utility>

#include "bench/device/cuda_error.hpp"

namespace flashcore::bench {

Result<CapturedGraph> CapturedGraph::capture(cudaStream_t stream, const TimedCall& call,
                                             int64_t calls) {
  CapturedGraph captured;
  FLASHCORE_RETURN_IF_ERROR(cuda_status(
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture"));
  Status status;
  for (int64_t i = 0; i < calls && status.ok(); ++i) status = call(Stream{stream});
  // Always end the capture, so that the stream stays usable.
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured.graph_);
  if (!status.ok()) {
    (void)cudaGetLastError();
    return status;
  }
  FLASHCORE_RETURN_IF_ERROR(cuda_status(ended, "capturing calls into a graph"));
  return captured;
}

CapturedGraph::CapturedGraph(CapturedGraph&& other) noexcept
    : graph_(std::exchange(other.graph_, nullptr)),
      executable_(std::exchange(other.executable_, nullptr)) {}

CapturedGraph::~CapturedGraph() {
  if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
  if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
}

Status CapturedGraph::instantiate() {
  return cuda_status(cudaGraphInstantiate(&executable_, graph_, 0), "instantiating a graph");
}

Status CapturedGraph::launch(cudaStream_t stream) const {
  return cuda_status(cudaGraphLaunch(executable_, stream), "replaying a graph");
}

}  // namespace flashcore::bench

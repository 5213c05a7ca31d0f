// Calls captured from a stream into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class CapturedGraph {
 public:
  // Captures `calls` calls back to back. Nothing runs.
  static Result<CapturedGraph> capture(cudaStream_t stream, const TimedCall& call, int64_t calls);

  CapturedGraph(CapturedGraph&& other) noexcept;
  CapturedGraph& operator=(CapturedGraph&&) = delete;
  ~CapturedGraph();

  cudaGraph_t graph() const { return graph_; }
  Status instantiate();
  Status launch(cudaStream_t stream) const;

 private:
  CapturedGraph() = default;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace flashcore::bench

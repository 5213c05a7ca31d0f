// The GPU that the tests of this folder run on: the first, or the simulator's in a build with that. Its streams, and
// graphs of them.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string_view>

#include "flashcore/flashcore.hpp"
#include "kernel/device_code.hpp"
#include "plan/table.hpp"

namespace flashcore {

inline Device first_gpu() {
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind != DeviceKind::cpu) return info.device;
  }
  return {DeviceKind::cuda, 0};  // there is none: tests skip
}

// Its compute capability, as 90 for 9.0; 0: there is none.
inline int32_t capability() {
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind != DeviceKind::cpu) return info.compute_capability;
  }
  return 0;
}
inline bool has_hopper() { return capability() == 90; }

// Returns whether a kernel of the table, or one with a tile, is for this GPU, and compiled for it.
inline bool runs_here(std::string_view kernel) {
  const Variant* variant = find_variant(kernel);
  if (variant == nullptr) variant = find_variant(kernel_part(kernel));
  EXPECT_NE(variant, nullptr) << kernel;
  if (variant == nullptr) return false;
  const Arch arch = variant->plan ? variant->supports.arch : variant->backward.supports.arch;
  return arch.least <= capability() && capability() <= arch.most &&
         built_for(variant->targets, capability());
}

// A stream that waits for no other.
class OwnStream {
 public:
  OwnStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// What body() launches on a stream, to be launched again. Capture in the global mode fails on any allocation or
// synchronisation.
class Graph {
 public:
  template <class Body>
  Graph(cudaStream_t stream, const Body& body) : stream_(stream) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    body();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void launch() const { EXPECT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace flashcore

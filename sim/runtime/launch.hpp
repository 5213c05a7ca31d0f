// Launches of the simulated runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>

#include "engine/launch.hpp"

namespace flashcore::sim {

// Of a thread, before it takes or gives some: no more than let so many blocks share an SM.
constexpr int first_registers(unsigned threads, unsigned blocks) {
  constexpr unsigned kRegisterFile = 65536, kMost = 248;
  return static_cast<int>(std::min(kRegisterFile / std::max(threads * blocks, 1u) / 8 * 8, kMost));
}

// As a CUDA launch: refused at once, or run at the latest when somebody waits for the stream.
// `kernel` is the host function by which cudaFuncSetAttribute knows it, `body` the call of it.
cudaError_t enqueue(const void* kernel, const LaunchOptions& options, std::function<void()> body,
                    cudaStream_t stream);

// Makes the call of a kernel from a launch's arguments, which it copies.
using Caller = std::function<std::function<void()>(void** arguments)>;
void learn_kernel(const void* kernel, Caller caller);

}  // namespace flashcore::sim

// Launches of the simulated runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>

#include "engine/launch.hpp"

namespace flashcore::sim {

// Registers per thread at the start, before any are released or acquired: as many as allow `blocks` blocks per SM.
constexpr int first_registers(unsigned threads, unsigned blocks) {
  constexpr unsigned kRegisterFile = 65536, kMost = 248;
  return static_cast<int>(std::min(kRegisterFile / std::max(threads * blocks, 1u) / 8 * 8, kMost));
}

// Like a CUDA launch: refused at once, or run at the latest when a thread waits for the
// stream. `kernel`: the host function known to cudaFuncSetAttribute; `body`: its call.
cudaError_t enqueue(const void* kernel, const LaunchOptions& options, std::function<void()> body,
                    cudaStream_t stream);

// Makes the call of a kernel from a launch's arguments, which it copies.
using Caller = std::function<std::function<void()>(void** arguments)>;
void learn_kernel(const void* kernel, Caller caller);

}  // namespace flashcore::sim

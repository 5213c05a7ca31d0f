// The kernels that one call launches, and their resources as reported by the runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Launch {
  std::string kernel;  // mangled
  int64_t blocks = 0;
  int64_t threads = 0;      // per block
  int registers = 0;        // per thread
  int64_t local_bytes = 0;  // per thread: spills and stack
  int64_t static_shared = 0;
  int64_t dynamic_shared = 0;
  int blocks_per_multiprocessor = 0;  // blocks that fit at once

  int64_t shared() const { return static_shared + dynamic_shared; }
};

// Captures the call on the stream, without running it.
Result<std::vector<Launch>> launches_of(cudaStream_t stream, const TimedCall& call);

}  // namespace flashcore::bench

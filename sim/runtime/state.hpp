// Shared by the files of the simulated runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

struct CUstream_st {
  bool captures = false;
  std::vector<std::function<void()>> captured;
};
struct CUgraph_st {
  std::vector<std::function<void()>> launches;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> launches;
};

namespace flashcore::sim {

// Runs this host thread's launches to their end; findings of the simulator are an error.
cudaError_t run_queue();

cudaError_t& last_error();     // of this host thread
std::string& last_findings();  // of this host thread's last launch that failed

// Bytes of shared memory that a block may have, on the current device.
size_t shared_limit();

// Held while device code runs, and while memory is allocated.
std::mutex& machine_mutex();

}  // namespace flashcore::sim

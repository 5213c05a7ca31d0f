// Launching by the driver, which takes 0.15 to 0.2 us less on the host than the runtime: that looks
// a kernel up in each launch.
#pragma once

#include <cuda_runtime_api.h>

namespace flashcore::cuda::host {

struct LaunchShape {
  dim3 grid;
  unsigned int threads = 0, shared_bytes = 0;  // of a block; shared: dynamic
  unsigned int cluster = 1;       // blocks along x, as the kernel's __cluster_dims__ already says
  unsigned int blocks_an_sm = 1;  // as the kernel's __launch_bounds__ already says
  bool early = false;  // programmatic dependent launch: may begin while earlier work still ends
};

// A kernel as the driver of the current GPU knows it. `kernel` is its host function.
cudaError_t find_function(cudaFunction_t& function, const void* kernel);

// Without types, for launch_kernel.hpp. Launches on the GPU that was current when the function was
// found, and still is. If the driver cannot launch it (after a reset of the device, say), the
// runtime looks `kernel` up again.
cudaError_t launch_function(cudaFunction_t function, const void* kernel, const LaunchShape& shape,
                            void** arguments, cudaStream_t stream);

}  // namespace flashcore::cuda::host

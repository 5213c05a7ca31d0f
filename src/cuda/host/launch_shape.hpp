// The shape of a launch by launch_kernel.
#pragma once

#include <cuda_runtime_api.h>

namespace flashcore::cuda::host {

struct LaunchShape {
  dim3 grid;
  unsigned int threads = 0, shared_bytes = 0;  // per block; shared: dynamic
  unsigned int cluster = 1;        // blocks along x, as the kernel's __cluster_dims__ already says
  unsigned int blocks_per_sm = 1;  // as the kernel's __launch_bounds__ already says
};

}  // namespace flashcore::cuda::host

// The single call that a profiler records. Only in builds with CUDA.
#pragma once

#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Makes a warm-up call, then one call between the profiler's marks.
Status run_profiled(HostProblem& host, const PlanOptions& options);

}  // namespace flashcore::bench

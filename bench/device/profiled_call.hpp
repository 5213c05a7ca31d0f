// The one call that a profiler looks at. In builds with CUDA.
#pragma once

#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// A call to warm up, then one between the profiler's marks.
Status run_profiled(HostProblem& host, const PlanOptions& options);

}  // namespace flashcore::bench

// Compiled kernels of forward_sm90_latency_wide for bf16.
#include "cuda/forward_sm90/latency_wide/instance.cuh"

namespace flashcore::cuda::forward_sm90::latency_wide {

InstanceEntry bf16_instance(Cover cover) { return compiled<Bf16>(cover); }

}  // namespace flashcore::cuda::forward_sm90::latency_wide

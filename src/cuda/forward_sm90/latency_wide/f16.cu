// Compiled kernels of forward_sm90_latency_wide for f16.
#include "cuda/forward_sm90/latency_wide/instance.cuh"

namespace flashcore::cuda::forward_sm90::latency_wide {

InstanceEntry f16_instance(Cover cover) { return compiled<Fp16>(cover); }

}  // namespace flashcore::cuda::forward_sm90::latency_wide

// Compiled kernels of forward_medium_sm90 for bf16.
#include "cuda/forward_medium_sm90/instance.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

InstanceEntry bf16_instance(Cover cover) { return compiled<forward_small_sm90::Bf16>(cover); }

}  // namespace flashcore::cuda::forward_medium_sm90

// Compiled kernels of forward_medium_sm90 for f16.
#include "cuda/forward_medium_sm90/instance.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

InstanceEntry f16_instance(Cover cover) { return compiled<forward_small_sm90::Fp16>(cover); }

}  // namespace flashcore::cuda::forward_medium_sm90

// Launching forward_sm90_latency_wide: the host's side, without CUDA headers' device code.
#pragma once

#include "cuda/forward_sm90/common/launch.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {

InstanceEntry f16_instance(Cover cover);
InstanceEntry bf16_instance(Cover cover);
InstanceEntry find_instance(InputType type, Cover cover);

}  // namespace flashcore::cuda::forward_sm90::latency_wide

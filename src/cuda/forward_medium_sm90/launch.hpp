// Launching forward_medium_sm90: the host's side, without CUDA headers' device code.
#pragma once

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/launch.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::Cover, forward_small_sm90::InputType, forward_small_sm90::InstanceEntry;

InstanceEntry f16_instance(Cover cover);
InstanceEntry bf16_instance(Cover cover);
InstanceEntry find_instance(InputType type, Cover cover);

}  // namespace flashcore::cuda::forward_medium_sm90

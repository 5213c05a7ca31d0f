// Which compiled kernel.
#include "cuda/forward_sm90/latency_wide/launch.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {

InstanceEntry find_instance(InputType type, Cover cover) {
  return type == InputType::f16 ? f16_instance(cover) : bf16_instance(cover);
}

}  // namespace flashcore::cuda::forward_sm90::latency_wide

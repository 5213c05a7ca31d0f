// Which compiled kernel.
#include "cuda/forward_medium_sm90/launch.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

InstanceEntry find_instance(InputType type, bool whole) {
  return type == InputType::f16 ? f16_instance(whole) : bf16_instance(whole);
}

}  // namespace flashcore::cuda::forward_medium_sm90

// Which compiled kernel.
#include "cuda/forward_medium_sm90/launch.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

InstanceEntry find_instance(InputType type, Cover cover) {
  return type == InputType::f16 ? f16_instance(cover) : bf16_instance(cover);
}

}  // namespace flashcore::cuda::forward_medium_sm90

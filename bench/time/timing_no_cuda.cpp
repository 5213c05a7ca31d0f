// Builds without CUDA have no CUDA timer.
#include "bench/time/timing.hpp"

namespace flashcore::bench {

Result<std::unique_ptr<Timer>> make_cuda_timer(int32_t /*index*/) {
  return Status(StatusCode::unsupported, "device: is cuda, wanted cpu in a build without CUDA");
}

}  // namespace flashcore::bench

#include "bench/time/meter.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

Result<std::unique_ptr<Meter>> make_cuda_meter(int32_t) {
  return unsupported("device: this build is without CUDA");
}

}  // namespace flashcore::bench

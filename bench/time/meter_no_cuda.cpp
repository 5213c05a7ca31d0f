#include "bench/time/launched.hpp"
#include "bench/time/meter.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

Result<std::unique_ptr<Meter>> make_cuda_meter(int32_t) {
  return unsupported("device: this build is without CUDA");
}

Result<std::set<std::string>> launched_by(const TimedCall&, Device) {
  return std::set<std::string>();
}

}  // namespace flashcore::bench

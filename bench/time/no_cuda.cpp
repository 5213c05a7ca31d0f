// What builds without CUDA have in place of its timer and meter.
#include "bench/time/launched.hpp"
#include "bench/time/meter.hpp"
#include "bench/time/timing.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

Result<std::unique_ptr<Meter>> make_cuda_meter(int32_t) {
  return unsupported("device: this build is without CUDA");
}

Result<std::unique_ptr<Timer>> make_cuda_timer(int32_t) {
  return unsupported("device: is cuda, wanted cpu in a build without CUDA");
}

Result<std::set<std::string>> launched_by(const TimedCall&, Device) {
  return std::set<std::string>();
}

}  // namespace flashcore::bench

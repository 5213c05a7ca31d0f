#include "bench/ceiling.hpp"

namespace flashcore::bench {

std::optional<Ceiling> measure_ceiling(const PlanOptions& options, DType dtype) {
  if (options.device.kind == DeviceKind::cuda) {
    return measure_cuda_ceiling(options.device.index, dtype);
  }
  return std::nullopt;
}

}  // namespace flashcore::bench

#include "bench/ceiling.hpp"

#include <algorithm>
#include <thread>

#include "bench/cpu_peak.hpp"

namespace flashcore::bench {

std::optional<Ceiling> measure_ceiling(const PlanOptions& options, DType dtype) {
  if (options.device.kind == DeviceKind::cuda) {
    return measure_cuda_ceiling(options.device.index, dtype);
  }
  // Every input type is multiplied in fp32, but for bf16 on processors with matrix instructions.
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const CpuPeak peak = measure_cpu_peak(options.threads > 0 ? options.threads : all);
  return Ceiling{.flop_a_second = peak.flop_a_second, .what = peak.what};
}

}  // namespace flashcore::bench

// What the processor's fp32 multiply-add units can do, measured: the ceiling of the CPU kernels.
#pragma once

#include <string>

namespace flashcore::bench {

struct CpuPeak {
  double flop_a_second = 0;  // all threads together
  std::string what;          // "fp32 FMA, 512 bits, 2 threads"
};

// Independent chains of fused multiply-adds in registers, at the widest SIMD that the processor
// has, on every thread at once, for about `seconds`. The best of several rounds.
// With `thread_time`, a thread's clock is the processor time that it got.
CpuPeak measure_cpu_peak(int threads, double seconds = 0.2, bool thread_time = false);

}  // namespace flashcore::bench

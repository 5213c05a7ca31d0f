// Measures the throughput of the processor's fp32 multiply-add units, and its memory bandwidth: the
// ceilings of the CPU kernels.
#pragma once

#include <string>

namespace flashcore::bench {

struct CpuPeak {
  double flop_per_second = 0;  // all threads together
  std::string what;            // "fp32 FMA, 512 bits, 2 threads"
};

// Independent chains of fused multiply-adds in registers, at the processor's widest SIMD, on every
// thread at once, for about `seconds`. Returns the best of several rounds. With `thread_time`, a
// thread's clock is its CPU time.
CpuPeak measure_cpu_peak(int threads, double seconds = 0.2, bool thread_time = false);

// Bytes per second that the threads read together, each its own part of 512 MB, which no cache
// holds. Returns the best of several rounds; 0 if there is not enough memory.
double measure_cpu_read(int threads);

}  // namespace flashcore::bench

// What the processor's fp32 multiply-add units can do, and how fast it reads memory, measured: the ceilings
// of the CPU kernels.
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

// Bytes a second that the threads read together, each its own part of 512 MB, which no cache holds. The
// best of several rounds; 0 where there is not so much memory.
double measure_cpu_read(int threads);

}  // namespace flashcore::bench

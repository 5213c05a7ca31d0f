#include "bench/cpu_peak.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <ctime>
#include <thread>
#include <vector>

namespace flashcore::bench {
namespace {

constexpr int kChains = 12;  // more than latency times throughput of any core so far
constexpr int64_t kSteps = 20000;

using Vector128 [[gnu::vector_size(16)]] = float;
using Vector256 [[gnu::vector_size(32)]] = float;
using Vector512 [[gnu::vector_size(64)]] = float;

// kSteps dependent multiply-adds of every chain. The values go to a fixed point: no denormals.
template <class Vector>
[[gnu::always_inline]] inline float chains(float factor, float addend) {
  const Vector a = Vector{} + factor;
  const Vector b = Vector{} + addend;
  Vector x0{}, x1{}, x2{}, x3{}, x4{}, x5{}, x6{}, x7{}, x8{}, x9{}, x10{}, x11{};
  for (int64_t i = 0; i < kSteps; ++i) {
    x0 = x0 * a + b, x1 = x1 * a + b, x2 = x2 * a + b, x3 = x3 * a + b;
    x4 = x4 * a + b, x5 = x5 * a + b, x6 = x6 * a + b, x7 = x7 * a + b;
    x8 = x8 * a + b, x9 = x9 * a + b, x10 = x10 * a + b, x11 = x11 * a + b;
    // Keeps the chains apart and in registers: they compute the same.
#if defined(__x86_64__)
    __asm__ volatile("" : "+x"(x0), "+x"(x1), "+x"(x2), "+x"(x3), "+x"(x4), "+x"(x5));
    __asm__ volatile("" : "+x"(x6), "+x"(x7), "+x"(x8), "+x"(x9), "+x"(x10), "+x"(x11));
#elif defined(__aarch64__)
    __asm__ volatile("" : "+w"(x0), "+w"(x1), "+w"(x2), "+w"(x3), "+w"(x4), "+w"(x5));
    __asm__ volatile("" : "+w"(x6), "+w"(x7), "+w"(x8), "+w"(x9), "+w"(x10), "+w"(x11));
#endif
  }
  const Vector sum = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + x10 + x11;
  return sum[0];
}

struct Probe {
  float (*run)(float, float);
  int lanes;
};

#if defined(__x86_64__)
[[gnu::target("avx512f,fma")]] float chains_512(float a, float b) {
  return chains<Vector512>(a, b);
}
[[gnu::target("avx2,fma")]] float chains_256(float a, float b) { return chains<Vector256>(a, b); }
#endif
float chains_128(float a, float b) { return chains<Vector128>(a, b); }

Probe choose_probe() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {chains_512, 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {chains_256, 8};
#endif
  return {chains_128, 4};
}

double seconds_now(bool thread_time) {
  timespec now{};
  clock_gettime(thread_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

CpuPeak measure_cpu_peak(int threads, double seconds, bool thread_time) {
  const Probe probe = choose_probe();
  constexpr int kRounds = 5;
  std::vector<double> rates(static_cast<size_t>(threads) * kRounds);
  std::atomic<float> sink{0};
  std::barrier together(threads);
  const auto work = [&](int thread) {
    float result = 0;
    for (int round = 0; round < kRounds; ++round) {
      together.arrive_and_wait();
      const double start = seconds_now(thread_time);
      double elapsed = 0;
      int64_t calls = 0;
      while (elapsed < seconds / kRounds) {
        result += probe.run(0.5f, 1.0f);
        ++calls;
        elapsed = seconds_now(thread_time) - start;
      }
      rates[static_cast<size_t>(round * threads + thread)] =
          static_cast<double>(calls * kSteps * kChains * probe.lanes * 2) / elapsed;
    }
    sink = result;
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
  }
  CpuPeak peak;
  for (int round = 0; round < kRounds; ++round) {
    double sum = 0;
    for (int t = 0; t < threads; ++t) sum += rates[static_cast<size_t>(round * threads + t)];
    peak.flop_a_second = std::max(peak.flop_a_second, sum);
  }
  peak.what = fmt::format("fp32 FMA, {} bits, {} thread{}", probe.lanes * 32, threads,
                          threads == 1 ? "" : "s");
  return peak;
}

}  // namespace flashcore::bench

#include "bench/time/cpu_peak.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <ctime>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace flashcore::bench {
namespace {

constexpr int kChains = 12;  // more than latency times throughput of any current core
constexpr int64_t kSteps = 20000;

using Vector128 [[gnu::vector_size(16)]] = float;
using Vector256 [[gnu::vector_size(32)]] = float;
using Vector512 [[gnu::vector_size(64)]] = float;

// kSteps dependent multiply-adds per chain. The values converge to a fixed point: no denormals.
template <class Vector>
[[gnu::always_inline]] inline float chains(float factor, float addend) {
  const Vector a = Vector{} + factor;
  const Vector b = Vector{} + addend;
  // Different starting values, so that no two chains are the same computation.
  Vector x0 = a, x1 = a + 1, x2 = a + 2, x3 = a + 3, x4 = a + 4, x5 = a + 5;
  Vector x6 = a + 6, x7 = a + 7, x8 = a + 8, x9 = a + 9, x10 = a + 10, x11 = a + 11;
  for (int64_t i = 0; i < kSteps; ++i) {
    x0 = x0 * a + b, x1 = x1 * a + b, x2 = x2 * a + b, x3 = x3 * a + b;
    x4 = x4 * a + b, x5 = x5 * a + b, x6 = x6 * a + b, x7 = x7 * a + b;
    x8 = x8 * a + b, x9 = x9 * a + b, x10 = x10 * a + b, x11 = x11 * a + b;
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

constexpr int64_t kReadBytes = int64_t{512} << 20;
using Words [[gnu::vector_size(64)]] = uint64_t;

// Eight independent loads, so that none waits for the one before.
uint64_t sum_of(const Words* words, int64_t count) {
  constexpr int kAtOnce = 8;
  Words sums[kAtOnce] = {};
  for (int64_t i = 0; i + kAtOnce <= count; i += kAtOnce) {
    for (int n = 0; n < kAtOnce; ++n) sums[n] += words[i + n];
  }
  for (int n = 1; n < kAtOnce; ++n) sums[0] += sums[n];
  return sums[0][0];
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
    peak.flop_per_second = std::max(peak.flop_per_second, sum);
  }
  peak.what = fmt::format("fp32 FMA, {} bits, {} thread{}", probe.lanes * 32, threads,
                          threads == 1 ? "" : "s");
  return peak;
}

double measure_cpu_read(int threads) {
  constexpr int kRounds = 5;
  const int64_t each = kReadBytes / static_cast<int64_t>(sizeof(Words)) / threads;
  const std::unique_ptr<Words[]> memory(new (std::nothrow)
                                            Words[static_cast<size_t>(each * threads)]);
  if (memory == nullptr) return 0;
  std::vector<double> seconds(static_cast<size_t>(threads) * kRounds);
  std::atomic<uint64_t> sink{0};
  std::barrier together(threads);
  const auto work = [&](int thread) {
    Words* const own = memory.get() + thread * each;
    std::fill(own, own + each, Words{} + 1);
    for (int round = 0; round < kRounds; ++round) {
      together.arrive_and_wait();
      const double start = seconds_now(false);
      sink += sum_of(own, each);
      seconds[static_cast<size_t>(round * threads + thread)] = seconds_now(false) - start;
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
  }
  double best = 0;
  for (auto round = seconds.begin(); round != seconds.end(); round += threads) {
    const double slowest = *std::max_element(round, round + threads);
    best = std::max(best, static_cast<double>(each * threads * int64_t{sizeof(Words)}) / slowest);
  }
  return best;
}

}  // namespace flashcore::bench

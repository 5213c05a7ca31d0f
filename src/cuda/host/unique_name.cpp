#include "cuda/host/unique_name.hpp"

#include <atomic>

namespace flashcore::cuda::host {
namespace {

constexpr uint64_t kMask = ~uint64_t{0} >> 1;

// One to one on 63 bits: each step can be undone. The steps are SplitMix64's (Steele, Lea,
// Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
constexpr uint64_t mix(uint64_t x) {
  x &= kMask;
  x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & kMask;
  x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & kMask;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t unique_name() noexcept {
  // Where this lies differs between processes.
  static std::atomic<uint64_t> calls{0};
  const uint64_t place = mix(reinterpret_cast<uintptr_t>(&calls));
  return mix(place + calls.fetch_add(1, std::memory_order_relaxed) * 0x9E3779B97F4A7C15) << 1;
}

}  // namespace flashcore::cuda::host

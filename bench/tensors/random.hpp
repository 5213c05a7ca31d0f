// Random numbers that are equal for every standard library: splitmix64 (Steele, Lea, Flood: Fast
// Splittable Pseudorandom Number Generators, OOPSLA 2014) and Box-Muller.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace flashcore::bench {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // In [first, last].
  int64_t integer(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(bits() % static_cast<uint64_t>(last - first + 1));
  }
  bool chance(double probability) { return uniform() < probability; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[static_cast<size_t>(integer(0, static_cast<int64_t>(values.size()) - 1))];
  }
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  uint64_t state_;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace flashcore::bench

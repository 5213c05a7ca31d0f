// Rows in lanes, which gradient_rows.cpp computes at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashcore::bench {

inline constexpr int64_t kLanes = 16;
using Lanes = std::array<double, kLanes>;

inline double& at(Lanes& lanes, int64_t lane) { return lanes[static_cast<size_t>(lane)]; }
inline double at(const Lanes& lanes, int64_t lane) { return lanes[static_cast<size_t>(lane)]; }

// Several rows in lanes, for products of all of them with one row, summed in T.
template <class T>
class SideBySide {
 public:
  SideBySide(const double* rows, int64_t count, int64_t width)
      : elements_(static_cast<size_t>(width * kLanes), T{0}), width_(width) {
    for (int64_t lane = 0; lane < count; ++lane) {
      for (int64_t d = 0; d < width; ++d) {
        elements_[static_cast<size_t>(d * kLanes + lane)] = static_cast<T>(rows[lane * width + d]);
      }
    }
  }

  Lanes products(const double* row) const {
    T sums[kLanes] = {};
    for (int64_t d = 0; d < width_; ++d) {
      const T factor = static_cast<T>(row[d]);
      const T* const lanes = elements_.data() + d * kLanes;
      for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += lanes[lane] * factor;
    }
    Lanes out;
    std::copy(std::begin(sums), std::end(sums), out.begin());
    return out;
  }

 private:
  std::vector<T> elements_;  // element d of a lane's row at [d * kLanes + lane]
  int64_t width_;
};

// One row per lane, to which weighted rows are added; rounded to T after each addition.
template <class T>
class Sums {
 public:
  explicit Sums(int64_t width) : sums_(static_cast<size_t>(width * kLanes), T{0}), width_(width) {}

  void add(const Lanes& weights, const double* row) {
    for (int64_t d = 0; d < width_; ++d) {
      T* const to = sums_.data() + d * kLanes;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        to[lane] = static_cast<T>(static_cast<double>(to[lane]) + weights[lane] * row[d]);
      }
    }
  }

  int64_t width() const { return width_; }
  double get(int64_t lane, int64_t d) const {
    return sums_[static_cast<size_t>(d * kLanes + lane)];
  }

 private:
  std::vector<T> sums_;
  int64_t width_;
};

}  // namespace flashcore::bench

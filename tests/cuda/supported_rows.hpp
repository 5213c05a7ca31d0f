// What every variant of the table computes, written down a second time.
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "kernel/supports.hpp"

namespace flashcore::tests {

enum class Pass { forward, backward };

inline constexpr int64_t kMostRows = int64_t{1} << 29;  // most kernels take fewer

struct SupportedRow {
  std::string_view variant;
  Pass pass = Pass::forward;
  Features computes;
  Dtypes q, o = {};  // o: where it may be of another type than Q
  HeadDims qk = {}, v = qk;
  Arch arch = {};
  int64_t rows_below = kMostRows;
  int64_t head_dim_qk = 64, head_dim_v = 64;  // of the problem that is asked about
  // What the variant is for, and its sentence where that is not there.
  void (*need)(ForwardProblem&) = nullptr;
  std::string_view without = {};
  // Two features that it computes one at a time.
  Features not_together = {};
  bool asks_another = false;  // a kernel within it may refuse what it computes
};

inline void PrintTo(const SupportedRow& row, std::ostream* out) { *out << row.variant; }

const std::vector<SupportedRow>& supported_rows();

}  // namespace flashcore::tests

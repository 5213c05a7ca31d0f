// The choice of a row of a kernel's table of configs.
#pragma once

#include <cstddef>

namespace flashcore::cuda::attention {

// Returns the index of the first row that fits, or -1.
template <class Table, class Fits>
constexpr int first_config(const Table& table, Fits fits) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (fits(table[i])) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace flashcore::cuda::attention

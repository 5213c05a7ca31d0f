// Finds the known name that is most similar to a misspelt one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <vector>

namespace flashcore {

// Edit distance: letters that must be added, removed or replaced to turn one name into the other.
inline size_t letters_between(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// Returns the first of the nearest names; `known` is not empty. Only the first kMost letters of `name` count.
inline std::string_view nearest_name(std::string_view name,
                                     const std::vector<std::string_view>& known) {
  constexpr size_t kMost = 100;
  name = name.substr(0, kMost);
  return *std::min_element(known.begin(), known.end(), [&](auto a, auto b) {
    return letters_between(name, a) < letters_between(name, b);
  });
}

}  // namespace flashcore

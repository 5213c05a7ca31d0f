#include "bench/text/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "problem/status.hpp"

namespace flashcore::bench {

std::string counted(int64_t number, std::string_view one, std::string_view many) {
  if (number == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", number, one) : fmt::format("{} {}", number, many);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<std::vector<int64_t>> parse_numbers(const std::string& option, const std::string& text,
                                           size_t count, const std::string& wanted) {
  std::vector<int64_t> numbers;
  bool good = true;
  for (const std::string& part : split(text, ',')) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    good = good && error == std::errc() && end == part.data() + part.size();
    numbers.push_back(number);
  }
  if (good && numbers.size() == count) return numbers;
  return invalid("{}: is '{}', wanted {}", option, text, wanted);
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

std::string rate_text(double flop_per_second) {
  if (flop_per_second >= 1e12) return fmt::format("{:.1f} TFLOP/s", flop_per_second / 1e12);
  return fmt::format("{:.3g} GFLOP/s", flop_per_second / 1e9);
}

}  // namespace flashcore::bench

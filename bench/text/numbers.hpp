// Lists and numbers as text: parsed from options, and formatted with units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// "1 problem", "2 problems"; `many` if it is not `one` with an s.
std::string counted(int64_t number, std::string_view one, std::string_view many = {});

std::vector<std::string> split(const std::string& text, char separator);

// "1,2,3" as whole numbers.
Result<std::vector<int64_t>> parse_numbers(const std::string& option, const std::string& text,
                                           size_t count, const std::string& wanted);

std::string seconds_text(double seconds);       // "3.21 us", "1.92 ms"
std::string rate_text(double flop_per_second);  // "52.1 GFLOP/s"

}  // namespace flashcore::bench

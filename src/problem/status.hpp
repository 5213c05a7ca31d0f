// Error messages: "k: shape [2, 3, 5, 64] has 3 heads, wanted a divisor of q's 8".
#pragma once

#include <fmt/format.h>

#include <utility>

#include "flashcore/flashcore.hpp"

namespace flashcore {

template <class... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
Status unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::unsupported, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace flashcore

// Returns the status from the enclosing function unless it is ok.
#define FLASHCORE_RETURN_IF_ERROR(expression)              \
  do {                                                     \
    ::flashcore::Status flashcore_status_ = (expression);  \
    if (!flashcore_status_.ok()) return flashcore_status_; \
  } while (false)

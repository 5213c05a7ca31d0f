// The suites of serving: few queries against long caches.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "bench/cases/cases.hpp"

namespace flashcore::bench {

// Returns a serving suite; nothing for another name. `quick`: an eighth of entries and of keys.
std::optional<std::vector<Case>> serving_cases(std::string_view name, bool quick);

}  // namespace flashcore::bench

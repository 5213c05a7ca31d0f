// Calls a function in a copy of this process: it may corrupt memory or crash, and this
// process goes on.
#pragma once

#include <functional>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Returns the result of `work` in the copy, which has no other threads. An error says how the copy
// ended early: by a signal, or because it took longer than `seconds`.
Result<std::string> call_in_copy(const std::function<std::string()>& work, double seconds);

}  // namespace flashcore::bench

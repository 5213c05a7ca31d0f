// A function in a copy of this process: whatever it does to memory, and however it ends, this process
// goes on.
#pragma once

#include <functional>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// What `work` returned in the copy, which has no other threads. An error says how the copy ended
// before: by a signal, or because it took longer than `seconds`.
Result<std::string> call_in_copy(const std::function<std::string()>& work, double seconds);

}  // namespace flashcore::bench

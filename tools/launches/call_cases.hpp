// The calls besides attention: merge, append, quantize and transpose_v, each in every form that
// launches another function.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {

struct CallCase {
  std::string_view kernel;  // as kernel.json of its family names it
  std::function<Status(const DeviceInfo&)> run;
};
std::vector<CallCase> call_cases();

}  // namespace flashcore

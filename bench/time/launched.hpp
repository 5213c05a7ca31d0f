// The device functions that a call launches, which identify a measurement.
#pragma once

#include <set>
#include <string>

#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Returns their mangled names; none for a call that is not for a CUDA device. The call is captured
// on a separate stream, and nothing runs. Defined in launches.cpp or no_cuda.cpp.
Result<std::set<std::string>> launched_by(const TimedCall& call, Device device);

}  // namespace flashcore::bench

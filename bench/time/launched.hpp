// The device functions that a call launches: what a measurement is of.
#pragma once

#include <set>
#include <string>

#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Their mangled names; none of a call that is not for a CUDA device. The call is captured on a
// stream of its own, and nothing runs. launches.cpp or meter_no_cuda.cpp defines it.
Result<std::set<std::string>> launched_by(const TimedCall& call, Device device);

}  // namespace flashcore::bench

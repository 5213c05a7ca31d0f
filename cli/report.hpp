// Formats devices and times: in words for people, as objects for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

std::string device_text(const DeviceInfo& device);  // "cpu: AMD ..., 2 threads"

nlohmann::ordered_json device_json(const DeviceInfo& device);
nlohmann::ordered_json timing_json(const bench::Timing& timing, double flop);

}  // namespace flashcore::cli

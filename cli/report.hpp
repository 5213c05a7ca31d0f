// How results are said: numbers with units for people, objects for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/gates.hpp"
#include "bench/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

std::string seconds_text(double seconds);           // "3.21 us", "1.92 ms"
std::string rate_text(double flop_a_second);        // "52.1 GFLOP/s"
std::string tensor_text(const TensorDesc& desc);    // "f16 [2, 8, 512, 64]"
std::string problem_text(const Problem& problem);   // tensors and options, one line
std::string options_text(const Problem& problem);   // "causal (bottom_right), softcap 30"
std::string device_text(const DeviceInfo& device);  // "cpu: AMD ..., 2 threads"

nlohmann::ordered_json tensor_json(const TensorDesc& desc);
nlohmann::ordered_json problem_json(const Problem& problem);
nlohmann::ordered_json device_json(const DeviceInfo& device);
nlohmann::ordered_json verdict_json(const bench::Verdict& verdict, const Problem& problem);
nlohmann::ordered_json timing_json(const bench::Timing& timing, double flop);

// The limits that a verdict on the problem is held to.
bench::GateLimits limits_of(const Problem& problem);

}  // namespace flashcore::cli

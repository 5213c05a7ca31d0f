// How long a rung takes, into its record of the evidence.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/time/cuda_timer.hpp"
#include "cuda/ladder/rung.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

// By every protocol, with its launches; `with_host`: what a call costs the host, too.
Status time_rung(bench::CudaTimer& timer, const cuda::ladder::Rung& rung, const bench::Case& shape,
                 Device device, bool with_host, nlohmann::ordered_json& record);

// To the timed rung before it, and to the unfused one; above 1 is faster.
void add_ratios(const std::vector<bench::Case>& shapes, nlohmann::ordered_json& records);

}  // namespace flashcore::cli

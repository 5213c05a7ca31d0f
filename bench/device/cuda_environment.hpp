// Properties and state of a GPU, for evidence.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace flashcore::bench {

// Name, compute capability, memory, driver, CUDA versions, clocks and power limit of a GPU.
nlohmann::ordered_json cuda_environment(int32_t index);

// The current {"sm_clock_mhz", "power_watts"} of a GPU; 0 if not known.
nlohmann::ordered_json cuda_state(int32_t index);

}  // namespace flashcore::bench

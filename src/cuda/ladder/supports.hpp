// Problems that a rung of the ladder does not support. Needs no CUDA header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::ladder {

// The properties that distinguish the refusals of different rungs.
struct RungTraits {
  DType input = DType::f16;  // f16 or f8e4m3
  int32_t min_compute_capability = 80;
  int32_t max_compute_capability = 0;  // 0: no limit
  bool tensor_maps = false;            // reads through TMA
};

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string rung_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                         const RungTraits& rung, std::string_view targets);

}  // namespace flashcore::cuda::ladder

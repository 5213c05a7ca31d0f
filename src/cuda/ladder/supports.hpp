// What a rung of the ladder does not compute. Needs no CUDA header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::ladder {

// What tells one rung's refusals from another's.
struct RungTraits {
  DType input = DType::f16;  // f16 or f8e4m3
  int32_t min_compute_capability = 80;
  int32_t max_compute_capability = 0;  // 0: no limit
  bool tensor_maps = false;            // reads through TMA
};

// One sentence, or empty. `targets`: what the kernels were compiled for, as in device_code.hpp.
std::string rung_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                         const RungTraits& rung, std::string_view targets);

}  // namespace flashcore::cuda::ladder

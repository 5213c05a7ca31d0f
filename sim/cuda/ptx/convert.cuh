// Stands for src/cuda/ptx/convert.cuh.
#pragma once

#include "engine/number_formats.hpp"

namespace flashcore::cuda::ptx {

inline float f16_to_float(uint16_t bits) { return sim::of_f16(bits); }
inline float bf16_to_float(uint16_t bits) { return sim::of_bf16(bits); }

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/native_e4m3.cuh.
#pragma once

namespace flashcore::cuda::ptx {

inline constexpr bool kMultipliesE4m3 = true;

}  // namespace flashcore::cuda::ptx

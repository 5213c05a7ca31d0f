// Stands for src/cuda/ptx/shared_memory.cuh.
#pragma once

#include "engine/global_memory.hpp"

namespace flashcore::cuda::ptx {

inline unsigned char* dynamic_shared() { return sim::dynamic_shared(); }

}  // namespace flashcore::cuda::ptx

// Stands for src/cuda/ptx/shared_variable.cuh.
#pragma once

#include "cuda/ptx/shared_memory.cuh"

#define FLASHCORE_SHARED_VARIABLE(name, ...) \
  auto& name = ::flashcore::cuda::ptx::static_shared<__VA_ARGS__>()
#define FLASHCORE_DYNAMIC_SHARED(name) \
  unsigned char* const name = ::flashcore::cuda::ptx::dynamic_shared()

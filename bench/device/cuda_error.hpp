// Turns CUDA runtime errors into a Status that names the failed operation.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "problem/status.hpp"

namespace flashcore::bench {

inline Status cuda_status(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return {};
  const StatusCode code =
      error == cudaErrorMemoryAllocation ? StatusCode::out_of_memory : StatusCode::device_error;
  return {code, fmt::format("cuda: {} failed with {} ({})", doing, cudaGetErrorName(error),
                            cudaGetErrorString(error))};
}

}  // namespace flashcore::bench

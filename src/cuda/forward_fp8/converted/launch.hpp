// Launching what is around a 16-bit kernel.
//
//   convert_inputs    fp8 Q, K and V, times their scales, as bf16 in the workspace
//   (a 16-bit kernel)
//   convert_outputs   O of bf16 as another type, and its largest values
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_fp8/converted/params.hpp"

namespace flashcore::cuda::forward_fp8::converted {

struct Functions {
  cudaFunction_t inputs, outputs;
};

// Once a device, before the first launch.
cudaError_t prepare(Functions& functions);
// early: the launch may begin before earlier work in the stream has ended.
cudaError_t convert_inputs(const Functions& functions, const InputParams& params, bool early,
                           cudaStream_t stream);
cudaError_t convert_outputs(const Functions& functions, const OutputParams& params,
                            cudaStream_t stream);

}  // namespace flashcore::cuda::forward_fp8::converted

// What CUDA kernels do alike between a problem and a launch.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "cuda/attention/forward_params.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// "kernel forward_sm80_throughput: the launch failed with ..."
Status cuda_failure(std::string_view kernel, std::string_view what, cudaError_t error);

// Everything but the pointers.
void set_forward_params(attention::ForwardParams& params, const ForwardProblem& p);

// The pointers of a run; those of absent inputs are null.
void bind_forward_params(attention::ForwardParams& params, const ForwardProblem& p,
                         const Arguments& args);

// The widest copies want pointers at multiples of 16 bytes.
bool is_aligned(const void* pointer);

}  // namespace flashcore::cuda::host

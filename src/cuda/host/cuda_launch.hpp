// What the CUDA families do alike between a problem and a launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "cuda/attention/forward_params.hpp"
#include "kernel/kernel.hpp"

namespace flashcore {

// "kernel forward_sm80_throughput: the launch failed with ..."
Status cuda_failure(std::string_view kernel, std::string_view what, cudaError_t error);

// Everything but the pointers.
void set_forward_params(cuda::attention::ForwardParams& params, const ForwardProblem& p);

// The pointers of a run; those of absent inputs are null.
void bind_forward_params(cuda::attention::ForwardParams& params, const ForwardProblem& p,
                         const Arguments& args);

// Whether batch entries differ in their lengths or diagonals.
bool entries_vary(const ForwardProblem& p);

// key - query on the diagonal of every entry, where they do not differ.
int64_t common_offset(const ForwardProblem& p);

// The widest copies want pointers at multiples of 16 bytes.
bool is_aligned(const void* pointer);

// `own` where q, k, v and o are aligned, otherwise `other`: pointers are known at the run only.
PlannedKernel where_aligned(PlannedKernel own, PlannedKernel other);

}  // namespace flashcore

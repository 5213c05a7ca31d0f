// What CUDA kernels do alike between a problem and a launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/scheduler.hpp"
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

// How many rows of K and of V together take section_bytes.
uint32_t section_rows(const ForwardProblem& p, int64_t section_bytes);

// The order of a launch's tiles of block_q queries: longest first under a causal mask, or where a
// window ends on the right. `section_rows`: of keys and values that stay in L2 together.
attention::TileOrder tile_order(const ForwardProblem& p, int block_q, uint32_t section_rows);

// The widest copies want pointers at multiples of 16 bytes.
bool is_aligned(const void* pointer);

}  // namespace flashcore::cuda::host

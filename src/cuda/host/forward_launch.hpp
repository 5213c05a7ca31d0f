// Shared by CUDA kernels: the steps between a problem and a launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/inputs.hpp"
#include "cuda/attention/scheduler.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// "kernel forward_sm80_throughput: the launch failed with ..."
Status cuda_failure(std::string_view kernel, std::string_view what, cudaError_t error);

// Sets everything except the pointers.
void set_forward_params(attention::ForwardParams& params, const ForwardProblem& p);

constexpr attention::RowStride row_stride(const RowStrides& stride) {
  return {stride.batch, stride.head, stride.row};
}

// Everything but the pointer.
attention::PairMatrix pair_matrix(const PairInput& input);

// Sets the pointers of a run; pointers of absent inputs are null.
void bind_forward_params(attention::ForwardParams& params, const ForwardProblem& p,
                         const Arguments& args);

// Returns the number of rows of K and V that together take section_bytes.
uint32_t section_rows(const ForwardProblem& p, int64_t section_bytes);

// Returns the order of a launch's tiles of block_q queries: longest first under a causal mask, or
// if a window ends on the right. `section_rows`: rows of keys and values that fit L2 together.
attention::TileOrder tile_order(const ForwardProblem& p, int block_q, uint32_t section_rows);

// Returns whether a pointer is a multiple of 16 bytes, which the widest copies require.
bool is_aligned(const void* pointer);

}  // namespace flashcore::cuda::host

// Sets the parameters of kernels of fp8 inputs from a problem.
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/params.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Terms of P.
enum class Terms { as_needed, two };

// A tile's queries and columns of V, and the bytes of keys and values of a section of heads that runs at once.
struct Fp8Tiles {
  int block_q, columns_v;
  int64_t section_bytes;
};

// Sets everything except the pointers.
void set_fp8_params(attention::fp8::Params& params, const ForwardProblem& p, const Fp8Tiles& tiles,
                    Terms terms);
void set_fp8_params(attention::fp8::OptionParams& params, const ForwardProblem& p,
                    const Fp8Tiles& tiles, Terms terms);

// Sets the pointers of a run, but for the workspace's.
void bind_fp8_params(attention::fp8::Params& params, const ForwardProblem& p,
                     const Arguments& args);
void bind_fp8_params(attention::fp8::OptionParams& params, const ForwardProblem& p,
                     const Arguments& args);

// Returns whether all tensors begin at multiples of 16 bytes, as copies require.
bool has_aligned_tensors(const ForwardProblem& p, const Arguments& args);

}  // namespace flashcore::cuda::host

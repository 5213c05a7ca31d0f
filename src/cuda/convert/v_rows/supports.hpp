// What forward_converted:v_rows computes where the kernels inside do, and the problem that is left to
// them. Needs no CUDA header.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel/supports.hpp"

namespace flashcore::cuda::convert::v_rows {

Supports supports();

// Bytes from a row of V in the workspace to the next: whole chunks of 16.
int64_t pitch_of(const ForwardProblem& problem);

// Bytes of V in the workspace, up to where a kernel's own part may begin; kTooLarge where they do not fit.
int64_t rows_bytes(const ForwardProblem& problem);

// Returns the problem with V in rows, in the workspace.
ForwardProblem in_rows(const ForwardProblem& problem);

// Blocks of a launch, a tile each: of the keys of a head, of its dimensions, and of all heads; kTooLarge where
// they do not fit.
struct Blocks {
  int64_t columns, dims, all;
};
Blocks blocks_of(const ForwardProblem& problem);

}  // namespace flashcore::cuda::convert::v_rows

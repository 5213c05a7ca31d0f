// What plans of backward_sm90 do alike.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/common/row_params.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90 {

// Everything but the pointers.
void set_row_params(RowParams& params, const BackwardProblem& problem, int block_q);
// The pointers of a run, but for the workspace's.
void bind_row_params(RowParams& params, const BackwardProblem& problem,
                     const BackwardArguments& args);

// Parts of a workspace, one after the other.
struct WorkspaceParts {
  int64_t end = 0;

  // Where `count` numbers of 4 bytes begin.
  int64_t add(int64_t count);
};

}  // namespace flashcore::cuda::backward_sm90

// What plans of backward_sm90 do alike.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"
#include "cuda/host/tensor_map.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90 {

// Everything but the pointers.
void set_row_params(RowParams& params, const BackwardProblem& problem, int block_q);
// The pointers of a run, but for the workspace's.
void bind_row_params(RowParams& params, const BackwardProblem& problem,
                     const BackwardArguments& args);

// What of a problem is left to launches with options: by rows whatever is one, or a head dimension other
// than `head_dim`; by tiles what changes scores or tells batch entries apart.
bool needs_option_rows(const BackwardProblem& problem, int head_dim);
bool needs_option_tiles(const ForwardProblem& p);
void set_options(Options& options, const BackwardProblem& problem);
void bind_options(Options& options, const BackwardProblem& problem, const BackwardArguments& args,
                  float* sink_terms);

// Tiles of `block` keys that a head has; in a packed batch slots of packed_tiles.hpp.
int64_t key_tiles_of_head(const ForwardProblem& p, int block);
// Batch entries whose tiles lie apart: a packed batch counts as one.
inline int64_t tile_batch(const ForwardProblem& p) { return p.packed ? 1 : p.batch; }
host::TensorLayout tensor_layout(const ForwardProblem& p, const RowStrides& stride, bool queries,
                                 int64_t columns);

// Parts of a workspace, one after the other.
struct WorkspaceParts {
  int64_t end = 0;

  // Where `count` numbers of 4 bytes begin.
  int64_t add(int64_t count);
};

}  // namespace flashcore::cuda::backward_sm90

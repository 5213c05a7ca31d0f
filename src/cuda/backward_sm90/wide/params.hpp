// The parameters of the launches of backward_sm90:wide.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/scheduler.hpp"
#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"
#include "cuda/backward_sm90/wide/config.hpp"

namespace flashcore::cuda::backward_sm90::wide {

// Kernels by rows: lanes that share a query.
inline constexpr int kLanes = kHeadDim / kLaneDims;

// Boxes of 64 rows and 64 columns.
struct Maps {
  CUtensorMap q, k, v, d_o, dq, dk, dv;
};

// A launch has blocks for queries, then blocks for keys.
struct Params : RowParams {
  attention::TileOrder query_order, key_order;

  // The rest of the workspace: nonzero if a gradient of a block is not finite.
  uint32_t* not_finite;

  constexpr uint32_t blocks() const { return query_order.size() + key_order.size(); }
};

// Kernels without options take only the first part.
struct OptionParams : Params {
  Options options;
};

}  // namespace flashcore::cuda::backward_sm90::wide

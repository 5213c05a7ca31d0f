// The parameters of dBias' launches.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/bias/walk.hpp"
#include "cuda/backward_sm90/throughput/params.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

struct BiasParams : PairParams {
  BiasTarget d_bias;
  int q_tiles, k_tiles;  // of all queries and keys
  uint32_t items;        // tiles of dBias
  uint32_t* marks;       // in the workspace: nonzero if a sum of a tile is not finite
};

}  // namespace flashcore::cuda::backward_sm90::throughput

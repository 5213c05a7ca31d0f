// Everything that one launch of forward_small_sm90 is told. Strides are in elements.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/forward_small_sm90/split.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::forward_small_sm90 {

struct Maps {
  CUtensorMap q, k, v;
};

// Copies go by the maps; the matrices are for what is read one by one.
struct Params : attention::ForwardParams {
  int heads_per_kv_head;
  float scale_log2;   // softmax_scale / ln 2, more than 0
  bool early;         // the launch may have begun before earlier grids have ended
  bool varies;        // entries differ in their lengths or diagonals
  BandLimits limits;  // of every entry, unless `varies`
  Band band;
};

}  // namespace flashcore::cuda::forward_small_sm90

// Everything that one launch of forward_sm90_latency is told. Strides are in elements.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/forward_sm90/latency/split.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::forward_sm90::latency {

struct Maps {
  CUtensorMap q, k, v;
};

// What every block reads before its first copies, in one line of the constant cache, which is cold
// at launch.
struct FirstParams {
  int queries;  // seqlen_q
  int heads_per_kv_head;
  BandLimits limits;  // of every entry, unless `varies`
  bool varies;        // entries differ in their lengths or diagonals
  bool fills;         // both head dimensions are those of the tiles
  float scale_log2;   // softmax_scale / ln 2, more than 0
};

// Copies go by the maps; the matrices are for what is read one by one.
struct Params : FirstParams, attention::ForwardParams {
  Band band;
};

}  // namespace flashcore::cuda::forward_sm90::latency

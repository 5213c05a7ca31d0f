// The parameters of a latency kernel that describe its problem. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/latency/key_tiles.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::attention::latency {

// The assumptions of a compiled kernel.
enum class TileBounds {
  checked,      // nothing
  causal_only,  // sequences are alike, KV tiles are full, and every row's keys begin in the first tile
  none,         // also, every row sees every key: no tile needs a mask
};

// The parameters that every block reads before its first copies,
// in one line of the constant cache, which is cold at launch.
struct FirstParams {
  int queries;  // seqlen_q
  int heads_per_kv_head;
  BandLimits limits;  // of every sequence, unless `varies`
  bool varies;        // sequences differ in their lengths or diagonals
  bool fills;         // both head dimensions equal the tiles'
  float scale_log2;   // softmax_scale / ln 2, more than 0
};

// If tensor maps are used for copies, the matrices serve single accesses.
struct Params : FirstParams, ForwardParams {
  Band band;
};

}  // namespace flashcore::cuda::attention::latency

// What a launch of a latency kernel is told about its problem. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/latency/key_tiles.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::attention::latency {

// What a compiled kernel takes for granted.
enum class Cover {
  any,    // nothing
  band,   // entries are alike, tiles of keys are full, and no row's keys begin late
  whole,  // and every row sees every key: no tile needs a mask
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

// Where copies go by tensor maps, the matrices are for what is read one by one.
struct Params : FirstParams, ForwardParams {
  Band band;
};

}  // namespace flashcore::cuda::attention::latency

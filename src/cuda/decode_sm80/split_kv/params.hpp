// Everything that one launch of decode_sm80 is told.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <type_traits>

#include "cuda/attention/decode/params.hpp"
#include "cuda/decode_sm80/split_kv/config.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

using attention::decode::HeadNumbers, attention::decode::KeyScales, attention::decode::TreeBits;

// Where an entry's partial results begin, in units, and how many parts its keys have.
struct EntryUnits {
  int first, parts;
};

struct Params : attention::decode::Params {
  EntryUnits* entry_units;  // of each batch entry with keys
  float2* partial_rows;     // [unit, row]: largest score, sum of e^(score - largest)
  float* partial_o;         // [unit, row, head_dim_v]: not yet divided by the sums
  int unit_rows;            // rows of a unit that have partial results
  int most_units;           // that there is room for
};

// What kernels that read tree masks are told.
struct TreeParams : Params {
  TreeBits tree;
};

template <Config kConfig>
using ParamsOf = std::conditional_t<kConfig.reads_trees, TreeParams, Params>;

}  // namespace flashcore::cuda::decode_sm80::split_kv

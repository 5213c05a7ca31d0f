// The parameters of one launch of decode_sm80.
#pragma once

#include <vector_types.h>

#include <type_traits>

#include "cuda/attention/decode/params.hpp"
#include "cuda/decode_sm80/split_kv/config.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

using attention::decode::KeyScales, attention::decode::TreeBits;

// A sequence's first partial result, in units, and the number of parts of its keys.
struct EntryUnits {
  int first, parts;
};

struct Params : attention::decode::Params {
  EntryUnits* entry_units;  // of each sequence with keys
  float2* partial_rows;     // [unit, row]: largest score, sum of e^(score - largest)
  float* partial_o;         // [unit, row, head_dim_v]: not yet divided by the sums
  int unit_rows;            // rows of a unit that have partial results
  int most_units;           // capacity of the workspace
};

// The parameters of kernels that read tree masks.
struct TreeParams : Params {
  TreeBits tree;
};

// The parameters of kernels that read bias and masks.
struct PairParams : TreeParams {
  attention::PairMatrix bias, mask;
  attention::ElementType bias_type;
};

template <Config kConfig>
using ParamsOf = std::conditional_t<kConfig.reads_pairs, PairParams,
                                    std::conditional_t<kConfig.reads_trees, TreeParams, Params>>;

}  // namespace flashcore::cuda::decode_sm80::split_kv

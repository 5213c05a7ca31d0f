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

enum class BiasType : int32_t { f32, f16, bf16 };

// [batch, head, query, key], broadcast where a stride is 0; absent when data is null.
struct PairElements {
  const void* data;
  int64_t batch, head, query, key;
};

// What kernels that read bias and masks are told.
struct PairParams : TreeParams {
  PairElements bias, mask;
  BiasType bias_type;
};

template <Config kConfig>
using ParamsOf = std::conditional_t<kConfig.reads_pairs, PairParams,
                                    std::conditional_t<kConfig.reads_trees, TreeParams, Params>>;

}  // namespace flashcore::cuda::decode_sm80::split_kv

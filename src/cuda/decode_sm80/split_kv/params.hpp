// Everything that one launch of decode_sm80 is told. Strides are in elements.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/softcap.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

// One fp32 number a batch entry and head; absent when data is null.
struct HeadNumbers {
  const float* data;
  int64_t batch, head;
};

// One fp32 scale a batch entry or page, head, and block of keys; absent when data is null.
struct KeyScales {
  const float* data;
  int64_t lead, head, block;
};

enum class OutputType : int32_t { f32, f16, bf16 };

// Where an entry's partial results begin, in units, and how many parts its keys have.
struct EntryUnits {
  int first, parts;
};

struct Params : attention::ForwardParams {
  attention::KvCacheParams cache;
  Band band;
  float softmax_scale;
  attention::SoftcapParams softcap;  // its units are natural ones here; cap_log2 0: off
  HeadNumbers sinks, alibi_slopes;
  KeyScales k_scale, v_scale;
  attention::Divisor by_scale_block;
  bool scaled;  // there are scales
  bool e5m2;    // of fp8 keys and values; otherwise e4m3
  bool chunks;  // rows of K and V are aligned 16-byte chunks; otherwise element by element
  bool pairs;   // rows of Q are aligned pairs
  bool batch_invariant;
  OutputType o_type;
  int group;  // heads_q / heads_kv
  attention::Divisor by_group;

  EntryUnits* entry_units;  // of each batch entry with keys
  float2* partial_rows;     // [unit, row]: largest score, sum of e^(score - largest)
  float* partial_o;         // [unit, row, head_dim_v]: not yet divided by the sums
  int unit_rows;            // rows of a unit that have partial results
  int most_units;           // that there is room for
};

}  // namespace flashcore::cuda::decode_sm80::split_kv

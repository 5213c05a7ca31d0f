// The parameters common to all decode kernels. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/element_type.hpp"
#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/inputs.hpp"
#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/softcap.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::attention::decode {

// One fp32 scale per sequence or page, head, and block of keys; absent if data is null.
struct KeyScales {
  const float* data;
  int64_t lead, head, block;
};

// A tree mask; strides are in words.
struct TreeBits {
  const int32_t* data;  // null is valid for a mask without words
  int64_t batch, query, word;
  int64_t words;
  bool present;
};

struct Params : ForwardParams {
  KvCacheParams cache;
  Band band;
  float softmax_scale;
  SoftcapParams softcap;  // in natural units here; cap_log2 0: off
  HeadVector sinks, alibi_slopes;
  KeyScales k_scale, v_scale;
  Divisor by_scale_block;
  bool scaled;  // there are scales
  bool k_e5m2;  // type of fp8 keys; otherwise e4m3
  bool chunks;  // rows of K and V are aligned 16-byte chunks; otherwise read element by element
  bool pairs;   // rows of Q are aligned pairs
  bool batch_invariant;
  bool v_e5m2;  // type of fp8 values
  ElementType o_type;
  int group;  // heads_q / heads_kv
  Divisor by_group;
};

}  // namespace flashcore::cuda::attention::decode

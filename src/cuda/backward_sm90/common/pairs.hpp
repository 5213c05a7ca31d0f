// What changes a pair's score or weight besides its product: a bias, a mask, ALiBi, dropout.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/element_type.hpp"
#include "cuda/attention/inputs.hpp"
#include "cuda/attention/mask_bits.hpp"
#include "cuda/backward_sm90/common/options.hpp"
#include "problem/philox.hpp"

namespace flashcore::cuda::backward_sm90 {

using attention::ElementType, attention::PairMatrix;

struct Pairs {
  PairMatrix bias, mask;
  ElementType bias_type;
  bool bias_tiles;           // tiles of the bias are copied to shared memory, by `bias_map`
  attention::MaskBits bits;  // of the mask, along queries
  float inverse_scale;       // of scores

  const float* slopes;  // of ALiBi; null: none
  int64_t slopes_batch, slopes_head;
  float* d_slopes;
  int64_t d_slopes_batch, d_slopes_head;
  bool d_slopes_by_batch;  // or of all sequences together
  // The workspace: for each tile of keys, query head of its group and warp, the sum of ds times the distance from the
  // diagonal. Null: dSlopes are not requested.
  float* slope_terms;

  bool dropout;
  uint32_t last_dropped;  // a pair is kept if its word is larger
  float rescale;          // of kept weights; 1 without dropout
  PhiloxKey key;
  const int64_t* state;  // seed and offset in memory; null: `key` applies
  int64_t state_step;

  CUtensorMap bias_map;

  constexpr int bias_element_bytes() const { return bias_type == ElementType::f32 ? 4 : 2; }
  // Returns whether steps have something in shared memory besides Q and dO.
  constexpr bool has_slot() const { return bias_tiles || mask.data != nullptr; }
};

// True if kernels with these parameters have pairs.
template <class P>
inline constexpr bool kHasPairs = requires(const P& p) {
  p.pairs;
};

}  // namespace flashcore::cuda::backward_sm90

// The parameters of one launch of forward_sm90_throughput. Strides are in elements.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/inputs.hpp"
#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/mask_bits.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

struct Maps {
  CUtensorMap q, k, v, o;
};
struct OptionMaps : Maps {
  CUtensorMap bias;
};

// The parameters with which a block finds its first tile, in
// one line of the constant cache, which is cold at launch.
struct FirstParams {
  TileOrder order;  // a packed batch, whose sequences have their own order, uses longest_first only
  uint32_t section_rows;              // size of a section: see section_heads()
  uint32_t heads, heads_per_kv_head;  // query heads
  int queries;                        // seqlen_q
  BandLimits limits;                  // of every sequence, unless `varies`
  bool varies;                        // sequences differ in their lengths or diagonals
  bool packed;
};

// TMA uses the maps (O's only for tiles whose outputs are
// staged); the matrices are for accesses that TMA cannot do.
struct Params : FirstParams, attention::ForwardParams {
  // The band: negative sides are unlimited, others at most 2^32.
  int64_t left, right;

  // Scores to units of log2, and the caller's scale. With features, a softcap replaces them if
  // there is one; it is computed by the polynomial as long as a lane's scores of a block allow
  // it.
  float scale_log2;
  float scale;
  attention::SoftcapParams softcap;
  attention::NearCap near_cap;
  const float* sinks;  // one per head; null when there are none
  int64_t sinks_step;

  unsigned long long* counter;  // tiles handed out; null: block b takes tiles b, b + blocks, ...
  uint64_t launch_name;         // identifies the counter as this plan's
};

// For paged keys and values: a box of the maps is rows of one page.
struct PagedParams : Params {
  attention::KvCacheParams cache;
  int box_rows, boxes;  // per block; box_rows divides the page size
  bool whole_rows;      // boxes have all columns, and pages and heads are one coordinate
  BoxSteps k_steps, v_steps;
};

// A bias [batch, head, query, key] of 16 bits with contiguous keys, which TMA copies; broadcast if a
// stride is 0; absent if data is null.
struct BiasMatrix {
  const uint16_t* data;
  int64_t batch, head, query;
};

// With options of pairs. Scores are in the units of products, or in units of log2 where scales_first.
struct OptionParams : Params {
  BiasMatrix bias;
  bool bias_is_f16;          // otherwise bf16
  attention::MaskBits mask;  // words: null without one
  attention::HeadVector alibi_slopes;
  bool batch_inside;     // the order of tiles has all sequences of a head before the next head
  bool scales_first;     // scores are scaled, and capped, before anything else
  float exponent_scale;  // from scores to units of log2
  float to_scores;       // from natural units to the units of scores
  attention::SoftcapParams natural_cap;  // in natural units; cap_log2 0: no cap
};

}  // namespace flashcore::cuda::forward_sm90::throughput

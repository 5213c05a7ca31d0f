// Everything that one launch of forward_sm90_throughput is told. Strides are in elements.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

struct Maps {
  CUtensorMap q, k, v, o;
};

// What a block needs to find its first tile, in one line of the constant cache, which is cold at
// launch.
struct FirstParams {
  TileOrder order;  // of a packed batch, whose entries have their own, only longest_first counts
  uint32_t section_rows;              // what makes a section: see section_heads()
  uint32_t heads, heads_per_kv_head;  // of queries
  int queries;                        // seqlen_q
  BandLimits limits;                  // of every entry, unless `varies`
  bool varies;                        // entries differ in their lengths or diagonals
  bool packed;
};

// TMA goes by the maps (that of O is used by tiles whose outputs are staged); the matrices are for
// what it cannot do.
struct Params : FirstParams, attention::ForwardParams {
  // The band: unlimited sides are negative, others at most 2^32.
  int64_t left, right;

  // Scores to units of log2, and as the caller gave it. The instances with features take the
  // softcap instead where there is one: by the polynomial while a lane's scores of a block allow
  // it.
  float scale_log2;
  float scale;
  attention::SoftcapParams softcap;
  attention::NearCap near_cap;
  const float* sinks;  // one per head; null when there are none
  int64_t sinks_step;

  unsigned long long* counter;  // of tiles handed out; null: block b takes b, b + blocks, ...
  uint64_t launch_name;         // what says that the counter is this plan's
};

// Of keys and values in pages: a box of their maps is rows of one page.
struct PagedParams : Params {
  attention::KvCacheParams cache;
  int box_rows, boxes;  // of a tile; box_rows divides the page size
};

}  // namespace flashcore::cuda::forward_sm90::throughput

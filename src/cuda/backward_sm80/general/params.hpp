// The parameters of the launches of backward_sm80. Strides are in elements.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "cuda/attention/element_type.hpp"
#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/inputs.hpp"
#include "cuda/attention/scheduler.hpp"
#include "problem/philox.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::backward_sm80::general {

using attention::ElementType, attention::HeadVector;

// A matrix that is read by tiles.
struct Source {
  attention::RowMatrix matrix;
  ElementType type;
  int columns;
  bool chunks;  // of the computation's type, in rows of aligned 16-byte chunks
};

// A matrix that is written.
struct Target {
  void* data;
  int64_t batch, head, row;
  ElementType type;
  int columns;
  bool pairs;   // two neighbouring columns, the first even, may be stored at once
  bool chunks;  // also eight columns, the first a multiple of eight
};

// [batch, head, query, key], broadcast if a stride is 0; absent if data is null.
struct PairMatrix {
  const void* data;
  int64_t batch, head, query, key;
  ElementType type;
};

// dBias; its extent is 1 in each dimension that is summed.
struct BiasTarget {
  void* data;
  int64_t batch, head, query, key;
  ElementType type;
  int extents[4];
};

// A sum over rows per head, for each sequence or over all of them.
struct HeadSum {
  float* data;  // null: not requested
  int64_t batch, head;
  bool by_batch;
  float* rows;  // each row's term, in the workspace
};

// The tiles of rows that blocks own, on one side: all tiles of
// every sequence, or slots of packed_tiles.hpp if those are fewer.
struct Tiling {
  attention::TileOrder order;
  int packed_slots;  // per head; 0: order applies
};

// State shared by the blocks of a joint kernel, in the workspace.
struct JointWorkspace {
  float* dq_sums;                  // see joint_sums.hpp
  unsigned long long* turns;       // for each tile of dQ and warp: number of KV
                                   // tiles added; null: atomic additions, to zeros
  unsigned long long* next_block;  // tickets
  unsigned long long*
      not_finite;      // 1: a sum was not finite, so the other kernels recompute everything
  int64_t head_tiles;  // tiles of dQ per head
  int64_t counters;    // next_block, not_finite and turns are contiguous
  int64_t zeros;       // of dq_sums, in units of 16 bytes
};

struct Params : attention::ForwardParams {
  Source q_tiles, k_tiles, v_tiles, d_o_tiles;
  ElementType o_type;
  bool o_chunks;       // O and dO are 16-bit, in rows of aligned 16-byte chunks
  int stats_lanes;     // threads per row that compute its statistics: 8, 16 or 32
  const float* d_lse;  // null: none
  int64_t d_lse_batch, d_lse_head, d_lse_row;
  Target dq, dk, dv;
  BiasTarget d_bias;
  HeadSum d_sinks, d_slopes;
  float2* rows;  // LSE and delta of each row, in the workspace: see row_number()

  JointWorkspace joint;  // null pointers: there is no joint kernel
  Tiling by_queries, by_keys;
  Tiling by_joint_queries, by_joint_keys;
  Band band;
  float softmax_scale;
  float cap, cap_rate;  // 0: off; the argument of tanh is a product times cap_rate
  PairMatrix bias, mask;
  HeadVector alibi_slopes, sinks;
  bool dropout;
  uint64_t dropout_threshold;  // a pair is kept if its word is at least this
  float dropout_rescale;
  PhiloxKey dropout_key;
  const int64_t* dropout_state;  // seed and offset in memory; null: dropout_key applies
  int64_t dropout_state_step;
};

}  // namespace flashcore::cuda::backward_sm80::general

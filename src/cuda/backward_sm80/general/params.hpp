// Everything that the launches of backward_sm80 are told. Strides are in elements.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/scheduler.hpp"
#include "problem/philox.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::backward_sm80::general {

enum class ElementType : int32_t { f32, f16, bf16 };

// A matrix that is read by tiles.
struct Source {
  attention::RowMatrix matrix;
  ElementType type;
  int columns;
  bool chunks;  // of the type of the computation, in rows of aligned 16-byte chunks
};

// A matrix that is written.
struct Target {
  void* data;
  int64_t batch, head, row;
  ElementType type;
  int columns;
  bool pairs;   // neighbouring columns, the first even, may be stored at once
  bool chunks;  // eight of them, the first a multiple of eight, too
};

// [batch, head, query, key], broadcast where a stride is 0; absent when data is null.
struct PairMatrix {
  const void* data;
  int64_t batch, head, query, key;
  ElementType type;
};

// One element a batch entry and head; absent when data is null.
struct HeadVector {
  const float* data;
  int64_t batch, head;
};

// dBias; its extent is 1 in each dimension over which it is a sum.
struct BiasTarget {
  void* data;
  int64_t batch, head, query, key;
  ElementType type;
  int extents[4];
};

// A sum over rows for each head, and for each batch entry or over all of them.
struct HeadSum {
  float* data;  // null: not wanted
  int64_t batch, head;
  bool by_batch;
  float* rows;  // what each row adds, in the workspace
};

// The tiles of rows that blocks own, on one side: all of every entry's, or slots of packed_tiles.hpp
// where those are fewer.
struct Tiling {
  attention::TileOrder order;
  int packed_slots;  // of a head; 0: order counts
};

// What blocks of a joint kernel share, in the workspace.
struct JointWorkspace {
  float* dq_sums;                  // see joint_sums.hpp
  unsigned long long* turns;       // of each tile of dQ and warp: key tiles that have been added;
                                   // null: in any order, to zeros
  unsigned long long* next_block;  // tickets
  unsigned long long*
      not_finite;      // 1: a sum was not, so the other kernels work out everything anew
  int64_t head_tiles;  // tiles of dQ that a head has
  int64_t counters;    // next_block, not_finite and turns lie together
  int64_t zeros;       // of dq_sums, in 16 bytes
};

struct Params : attention::ForwardParams {
  Source q_tiles, k_tiles, v_tiles, d_o_tiles;
  ElementType o_type;
  bool o_chunks;       // O and dO are of 16 bits, in rows of aligned 16-byte chunks
  int note_lanes;      // threads that a row's note takes: 8, 16 or 32
  const float* d_lse;  // null: there is none
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
  float cap, cap_rate;  // 0: off; what tanh is taken of is a product times cap_rate
  PairMatrix bias, mask;
  HeadVector alibi_slopes, sinks;
  bool dropout;
  uint64_t dropout_threshold;  // a pair is kept when its word is at least this
  float dropout_rescale;
  PhiloxKey dropout_key;
  const int64_t* dropout_state;  // seed and offset in memory; null: dropout_key counts
  int64_t dropout_state_step;
};

}  // namespace flashcore::cuda::backward_sm80::general

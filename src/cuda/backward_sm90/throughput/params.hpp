// Everything that the launches of backward_sm90 are told. Strides are in elements.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/scheduler.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

struct Maps {
  CUtensorMap q, k, v, d_o, dk, dv;
};

// A matrix of 16-bit numbers in rows of aligned 16-byte chunks that is written.
struct Target {
  void* data;
  int64_t batch, head, row;
};

// TMA goes by the maps; the matrices are for what goes by rows.
struct Params : attention::ForwardParams {
  attention::RowMatrix d_o;
  const float* d_lse;  // null: there is none
  int64_t d_lse_batch, d_lse_head, d_lse_row;
  Target dq, dk, dv;

  attention::TileOrder order;  // of tiles of keys
  attention::BandLimits limits;
  int group;     // heads of queries that share a head of keys
  int q_blocks;  // of a head
  float scale_log2, scale;
  bool in_turn;  // tiles add to dQ in turn, and the first stores

  // The workspace.
  float* sums;           // dQ / scale, by blocks of queries: see sum_place
  float* notes;          // of each block of queries -LSE log2(e), then delta, of each query
  uint32_t* turns;       // of each block, and each consumer's part of it: how many tiles have added
  uint32_t* not_finite;  // of each tile of keys: whether a sum of it is not finite
  uint32_t* next_tile;   // of keys
};

}  // namespace flashcore::cuda::backward_sm90::throughput

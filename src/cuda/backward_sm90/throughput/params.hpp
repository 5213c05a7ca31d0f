// The parameters of the launches of backward_sm90.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/scheduler.hpp"
#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/pairs.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

struct Maps {
  CUtensorMap q, k, v, d_o, dk, dv;
};

inline constexpr uint32_t kNotFinite = ~0U;

// TMA uses the maps; accesses by rows use the matrices.
struct Params : RowParams {
  attention::TileOrder order;  // of KV tiles
  bool deterministic;          // to dQ: the first tile stores sums, and the last one rows

  // The rest of the workspace.
  float* sums;  // dQ / scale, by blocks of queries: see sum_place
  // For each block, and each consumer's part of it: the number of tiles that
  // have added in order, or kNotFinite if a sum of the part is not finite.
  uint32_t* turns;
  uint32_t* not_finite;  // per KV tile: nonzero if a sum is not finite
  uint32_t* next_tile;   // of keys
};

// A block's task: a KV tile. Rows: with options, its sequence's.
template <class Rows>
struct TaskOf {
  int batch, kv_head, tile;
  attention::TileRange range;  // of query blocks
  int steps;                   // the range, once per query head
  Rows rows;
};
struct NoRows {};
using Task = TaskOf<NoRows>;
using EntryTask = TaskOf<EntryRows>;
// What a block with pairs finds besides its task.
struct PairTerms {
  int64_t offset;  // of the diagonal
  int entry;       // the sequence
  PhiloxKey key;   // of dropout
};

// Kernels without options take only the first part.
struct OptionParams : Params {
  Options options;
  EntryTask* tasks;  // in the workspace: one per tile, found by the first launch
  // In the workspace: nonzero if starts of the packed batch decrease. A sequence's tiles wait for
  // earlier ones, and then some would have no block; so nothing is computed, and gradients are 0.
  uint32_t* starts_fall;
};

// Kernels with pairs.
struct PairParams : OptionParams {
  Pairs pairs;
};

}  // namespace flashcore::cuda::backward_sm90::throughput

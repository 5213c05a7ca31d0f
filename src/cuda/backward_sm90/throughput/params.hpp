// Everything that the launches of backward_sm90 are told.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/scheduler.hpp"
#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

struct Maps {
  CUtensorMap q, k, v, d_o, dk, dv;
};

inline constexpr uint32_t kNotFinite = ~0U;

// TMA goes by the maps; the matrices are for what goes by rows.
struct Params : RowParams {
  attention::TileOrder order;  // of tiles of keys
  bool in_turn;                // tiles add to dQ in turn: the first stores sums, and the last rows

  // The rest of the workspace.
  float* sums;  // dQ / scale, by blocks of queries: see sum_place
  // Of each block, and each consumer's part of it: how many tiles have added in turn, then kNotFinite
  // where a sum of it is not.
  uint32_t* turns;
  uint32_t* not_finite;  // of each tile of keys: whether a sum of it is not finite
  uint32_t* next_tile;   // of keys
};

// What a block computes: a tile of keys. Rows: with options those of its own batch entry.
template <class Rows>
struct TaskOf {
  int batch, kv_head, tile;
  attention::TileRange range;  // of blocks of queries
  int steps;                   // the range once for each head of queries
  Rows rows;
};
struct NoRows {};
using Task = TaskOf<NoRows>;
using EntryTask = TaskOf<EntryRows>;

// Kernels without options are told the first part alone.
struct OptionParams : Params {
  Options options;
  EntryTask* tasks;  // in the workspace: of each tile, found by the first launch
  // In the workspace: whether starts of the packed batch fall. Tiles of an entry wait for those before
  // them, and then some have no block; so nothing is computed, and gradients are 0.
  uint32_t* starts_fall;
};

}  // namespace flashcore::cuda::backward_sm90::throughput

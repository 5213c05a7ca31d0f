// A block's walk over the tiles of the other side, which computes the sums of its rows.
//
//   tile n    : | wait, barrier | S, T | P, dS | sums += ... | barrier |
//   tile n + 1:                 | load, if there is a second stage -->
#pragma once

#include <cstdint>

#include "cuda/attention/softmax.cuh"
#include "cuda/backward_sm80/general/guard.cuh"
#include "cuda/backward_sm80/general/products.cuh"
#include "cuda/backward_sm80/general/scores.cuh"
#include "cuda/backward_sm80/general/tiles.cuh"
#include "cuda/ptx/cp_async.cuh"

namespace flashcore::cuda::backward_sm80::general {

// A warp's sums of its 16 rows.
template <Config kConfig, Output kOutput>
struct Gradients {
  using S = Shape<kConfig>;
  float first[has_first(kOutput) ? S::kColumns : 1][4];
  float second[has_second(kOutput) ? S::kColumns : 1][4];
  // For dQ with all features, per row of a lane: whether it sees a
  // key, and the sum of ds times the distance from the diagonal.
  bool sees[2];
  float distances[2];
};

// LSE and delta of a lane's two query rows. Rows past the end have none.
struct LaneStats {
  RowStats rows[2];
};
__device__ __forceinline__ LaneStats lane_stats(const Params& p, const attention::Entry& entry,
                                                int batch, int head, int row) {
  LaneStats row_stats{};
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    if (row + 8 * slot >= entry.len_q) continue;
    const float2 stats = p.rows[row_number(p, entry, batch, head, row + 8 * slot)];
    row_stats.rows[slot] = {stats.x, stats.y};
  }
  return row_stats;
}

// `pass`: see guard.cuh.
template <Config kConfig, class Element, Output kOutput, Features kFeatures>
__device__ __forceinline__ void walk(const Params& p, const Task& task, unsigned char* shared,
                                     int thread, Gradients<kConfig, kOutput>& sums, Pass pass) {
  using S = Shape<kConfig>;
  using T = Tiles<kConfig, Element, kOutput>;
  constexpr bool kQueries = T::kOwnsQueries;
  const T tiles{shared};
  const int warp = thread / 32, lane = thread % 32;
  clear(sums.first);
  clear(sums.second);
  sums.sees[0] = sums.sees[1] = false;
  sums.distances[0] = sums.distances[1] = 0;

  const attention::Entry& entry = task.entry;
  const attention::BandLimits limits = limits_of<kQueries>(p, entry);
  const attention::TileRange range =
      attention::tile_range(limits, length_of<kQueries>(entry), task.first,
                            task.first + kConfig.block_x(), kConfig.block_y);
  if (range.empty()) return;
  // Queries use one KV head; a KV head is used by a group of query heads.
  const int group = p.heads_q / p.heads_kv;
  const int first_head = kQueries ? task.head / group : task.head * group;
  const int turns = (kQueries ? 1 : group) * range.size();
  const PhiloxKey key = kFeatures == Features::all && p.dropout ? dropout_key_of(p) : PhiloxKey{};

  LanePlace place{task.batch, task.head, task.first + 16 * warp + lane / 4, 0};
  LaneStats own{};
  // Wide sums leave no registers for the row statistics: every iteration reads them again.
  constexpr bool kKeepsStats = kConfig.head_dim <= 128;
  const auto read_stats = [&] {
    if (kQueries) own = lane_stats(p, entry, task.batch, task.head, place.row);
  };
  if (kKeepsStats) read_stats();

  tiles.load_x(p, entry, task.batch, task.head, task.first, thread);
  constexpr int kAhead = kConfig.stages - 1;
  int head = first_head, tile = range.begin;  // current; load_head, load_tile: the next to load
  int load_head = first_head, load_tile = range.begin;
  const auto advance = [&](int& one_head, int& one_tile) {
    const bool ends = ++one_tile == range.end;
    one_tile = ends ? range.begin : one_tile;
    one_head += ends ? 1 : 0;
  };
#pragma unroll 1
  for (int turn = -kAhead; turn < turns; ++turn) {
    if (turn + kAhead < turns) {
      tiles.load_y(p, entry, task.batch, load_head, load_tile * kConfig.block_y,
                   (turn + kAhead) % kConfig.stages, thread);
      if (kAhead == 0) head = load_head, tile = load_tile;
      advance(load_head, load_tile);
    }
    ptx::cp_async_commit();
    if (turn < 0) continue;
    const int stage = turn % kConfig.stages;
    ptx::cp_async_wait<kAhead>();
    __syncthreads();

    typename S::Scores s, t;
    if (!T::kNeedsDs) clear(t);
    tiles.multiply(s, t, stage, pass != Pass::plain, warp, lane);
    const int first_column = tile * kConfig.block_y;
    place.column = first_column + 2 * (lane % 4);
    if (!kQueries) place.head = head;
    if (!kKeepsStats) read_stats();
    const ScoreTerms terms =
        kFeatures == Features::all ? score_terms(p, entry, task.batch, place.head) : ScoreTerms{};
    const float2* const row_stats = tiles.row_stats(stage) + 2 * (lane % 4);
    weigh<kQueries, kFeatures>(
        s, t, p, terms, key, place, limits, attention::kMostRows, range.needs_mask(tile),
        pass == Pass::kinds,
        [&](int n, int e) {
          if constexpr (kQueries) return own.rows[e / 2];
          const float2 stats = row_stats[8 * n + e % 2];
          return RowStats{stats.x, stats.y};
        },
        [&](int, int e, int row, int column, bool attended, float ds) {
          if constexpr (kOutput == Output::dq && kFeatures == Features::all) {
            sums.sees[e / 2] = sums.sees[e / 2] || attended;
            if (p.d_slopes.data != nullptr) {
              const auto distance = static_cast<float>(abs(row + entry.offset - column));
              sums.distances[e / 2] = fmaf(ds, distance, sums.distances[e / 2]);
            }
          }
        });
    if (pass != Pass::plain) {
      __syncthreads();
      guard_tile<Element>(tiles.y1(stage), kConfig.stage_bytes(), pass, thread, kConfig.threads());
      __syncthreads();
    }
    if constexpr (has_second(kOutput)) {
      multiply_ay<kConfig, Element>(sums.second, s, ptx::shared_address(tiles.y2(stage)), lane);
    }
    if constexpr (has_first(kOutput)) {
      multiply_ay<kConfig, Element>(sums.first, t, ptx::shared_address(tiles.y1(stage)), lane);
    }
    __syncthreads();
    if (kAhead > 0) advance(head, tile);
  }
}

}  // namespace flashcore::cuda::backward_sm80::general

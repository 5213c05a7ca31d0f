// Which of forward_sm90_throughput's tiles computes a problem, and how its tiles are handed out.
// Where several rows of kConfigs hold the head dimensions, the one with the least predicted time:
//
//   a tile    begin_and_end + steps * step, and `mask` where there is one. A step is one block of
//             keys for all of its warpgroups, of which each counts for its part: those without rows
//             and blocks that none of a warpgroup's rows sees leave the SM to the others
//   even      waves of as many tiles as the GPU holds at once. In the last one an SM may have fewer,
//             and each of them is faster: by itself it takes `alone` of its time
//   uneven    all tiles shared out, and half of the shortest one, while the last tiles end
//   either    none is done before the longest one, which has others on its SM until they end
//
// Constants are microseconds on an H200, fitted to 252 problems by tools/fit_sm90_tiles.py
// (docs/forward-sm90.md). Predictions are off by 5% on average.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "kernel/query_tiles.hpp"
#include "problem/problem.hpp"
#include "tuning/small_choice.hpp"

namespace flashcore::tuning {

inline constexpr double kSm90TileLaunch = 2.273;

struct Sm90TileModel {
  double begin_and_end, step, mask, alone;
};

// Of a tile with others on its SM, where it shares that.
constexpr Sm90TileModel sm90_tile_model(const cuda::forward_sm90::throughput::Config& config) {
  if (config.blocks_an_sm == 1) return {2.091, 1.310, 0.057, 1.000};
  if (config.blocks_an_sm == 2) return {1.638, 0.993, 0.344, 0.809};
  return {1.895, 0.798, 0.371, 0.574};
}

inline double predicted_us(const ForwardProblem& p,
                           const cuda::forward_sm90::throughput::Config& config,
                           int64_t multiprocessors) {
  const Sm90TileModel model = sm90_tile_model(config);
  const Work groups = work_of(p, cuda::forward_sm90::throughput::kWarpgroupRows, config.block_kv);
  const auto units = static_cast<double>(std::max<int64_t>(units_of(p, config.block_q()), 1));
  const int64_t blocks = config.blocks_an_sm;
  const double tiles_an_sm = units / static_cast<double>(std::max<int64_t>(multiprocessors, 1));

  const double steps =
      groups.average * static_cast<double>(groups.units) / units / config.consumers;
  const bool masked = p.band.right >= 0 || p.band.left >= 0;
  const double once = model.begin_and_end + (masked ? model.mask : 0);
  const double tile = once + steps * model.step;

  // Of a tile's time, with so many others on its SM.
  const auto share = [&](double others) {
    const auto most = static_cast<double>(std::max<int64_t>(blocks - 1, 1));
    return model.alone + (1 - model.alone) * others / most;
  };
  const double others = std::clamp(tiles_an_sm - 1, 0.0, static_cast<double>(blocks - 1));
  const double others_last = groups.longest > 0 ? steps / groups.longest : 1;
  const double longest = share(others * others_last) * (once + groups.longest * model.step);

  double all = 0;
  if (cuda::forward_sm90::throughput::sees_unevenly(p)) {
    all = tiles_an_sm / static_cast<double>(blocks) * tile;
    if (tiles_an_sm > static_cast<double>(blocks)) {
      all += model.alone * (once + groups.shortest * model.step) / 2;
    }
  } else {
    const auto most = static_cast<int64_t>(std::ceil(tiles_an_sm));
    const int64_t waves = most / blocks, left = most % blocks;
    all = static_cast<double>(waves) * tile;
    if (left > 0) all += share(static_cast<double>(left - 1)) * tile;
  }
  return kSm90TileLaunch + std::max(longest, all);
}

// Index into kConfigs, or -1 when a head dimension is too large.
inline int choose_sm90_tile(const ForwardProblem& p, int64_t multiprocessors) {
  const std::vector<int> rows = cuda::forward_sm90::throughput::tile_candidates(p);
  if (rows.size() < 2) return rows.empty() ? -1 : rows[0];
  const auto us = [&](int row) {
    return predicted_us(p, cuda::forward_sm90::throughput::kConfigs[static_cast<size_t>(row)],
                        multiprocessors);
  };
  return *std::min_element(rows.begin(), rows.end(), [&](int a, int b) { return us(a) < us(b); });
}

}  // namespace flashcore::tuning

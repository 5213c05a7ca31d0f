// Which of forward_sm90_throughput's tiles computes a problem, and how its tiles are handed out.
// Where several rows of kConfigs hold the head dimensions, the one with the least predicted time:
//
//   a tile    begin_and_end + steps * step, and `mask` where there is one
//   even      waves of as many as the GPU holds at once, full or not, of the average tile's length:
//             a head's last one may have fewer rows
//   uneven    all tiles shared out
//   either    none is done before the longest one, which takes `alone` of its time where others on
//             its SM have ended
//
// A step is one block of keys. Constants are microseconds on an H200, fitted to 236 problems by
// tools/fit_sm90_tiles.py (docs/forward-sm90.md); only their ratios matter here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/forward_sm90/throughput/config.hpp"
#include "problem/problem.hpp"
#include "tuning/small_choice.hpp"

namespace flashcore {

struct Sm90TileModel {
  double begin_and_end, step, mask, alone;
};

// Of a tile with others on its SM, where it shares that.
constexpr Sm90TileModel sm90_tile_model(const cuda::forward_sm90::throughput::Config& config) {
  if (config.blocks_an_sm == 1) return {3.276, 1.150, 0.402, 1.200};
  if (config.blocks_an_sm == 2) return {3.425, 0.828, 0.582, 0.950};
  return {2.247, 0.851, 0.948, 0.744};
}

// Whether tiles differ in how many keys they see, or in how many rows they have: then they are
// handed out one by one.
constexpr bool sees_unevenly(const ForwardProblem& p) {
  return p.band.right >= 0 || p.band.left >= 0 || p.packed || p.seqlens_q.present ||
         p.seqlens_kv.present;
}
constexpr bool is_uneven(const ForwardProblem& p,
                         const cuda::forward_sm90::throughput::Config& config) {
  return sees_unevenly(p) || p.seqlen_q % config.block_q() != 0;
}

inline double predicted_us(const ForwardProblem& p,
                           const cuda::forward_sm90::throughput::Config& config,
                           int64_t multiprocessors) {
  const Sm90TileModel model = sm90_tile_model(config);
  const Work work = work_of(p, config.block_q(), config.block_kv);
  const auto places =
      static_cast<double>(std::max<int64_t>(multiprocessors, 1)) * config.blocks_an_sm;
  const bool masked = p.band.right >= 0 || p.band.left >= 0;
  const double once = model.begin_and_end + (masked ? model.mask : 0);
  const double longest = model.alone * (once + work.longest * model.step);
  // Warpgroups without a row leave the SM to the others.
  const double full_tiles =
      static_cast<double>(p.batch * p.heads_q) * static_cast<double>(p.seqlen_q) / config.block_q();
  const double all =
      static_cast<double>(work.units) * once + full_tiles * work.average * model.step;
  if (sees_unevenly(p)) return std::max(longest, all / places);
  const double units = static_cast<double>(std::max<int64_t>(work.units, 1));
  return std::max(longest, std::ceil(units / places) * all / units);
}

// Whether scores are transformed: those instances are compiled apart.
constexpr bool sm90_features(const ForwardProblem& p) {
  return p.softcap > 0 || !(p.softmax_scale > 0);
}

// Rows of kConfigs: those as narrow as the first that holds the problem.
inline std::vector<int> sm90_tile_candidates(const ForwardProblem& p) {
  namespace sm90 = cuda::forward_sm90::throughput;
  std::vector<int> rows;
  const int first = sm90::choose_config(p.head_dim_qk, p.head_dim_v, sm90_features(p));
  if (first < 0) return rows;
  const sm90::Config& narrowest = sm90::kConfigs[static_cast<size_t>(first)];
  for (size_t i = static_cast<size_t>(first); i < sm90::kConfigs.size(); ++i) {
    const sm90::Config& c = sm90::kConfigs[i];
    if (c.head_dim_qk == narrowest.head_dim_qk && c.head_dim_v == narrowest.head_dim_v &&
        (sm90_features(p) ? c.features : c.plain)) {
      rows.push_back(static_cast<int>(i));
    }
  }
  return rows;
}

// Index into kConfigs, or -1 when a head dimension is too large.
inline int choose_sm90_tile(const ForwardProblem& p, int64_t multiprocessors) {
  const std::vector<int> rows = sm90_tile_candidates(p);
  if (rows.size() < 2) return rows.empty() ? -1 : rows[0];
  const auto us = [&](int row) {
    return predicted_us(p, cuda::forward_sm90::throughput::kConfigs[static_cast<size_t>(row)],
                        multiprocessors);
  };
  return *std::min_element(rows.begin(), rows.end(), [&](int a, int b) { return us(a) < us(b); });
}

}  // namespace flashcore

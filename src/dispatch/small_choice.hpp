// Small problem or not: the predicted times of forward_small_sm90 and of the kernel that would run
// otherwise.
//
// Both are modelled alike. Units of work (clusters, blocks) go over the machine in waves; a unit
// costs something once, and something for each step over its keys:
//
//   time = launch + waves * (unit + steps * step(head_dim))
//
// A machine that is not full takes one wave as long as its longest unit; a full one takes its share
// of all units. All constants are in kSmallTimes and kBlockTimes, fitted by
// tools/fit_small_choice.py to what flashcore_small_grid measured; tests replay the recording.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/split.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// Microseconds on an H200.
struct KernelTimes {
  double launch;
  double unit;
  double step_64, step_128;  // by head dimension; between them linear

  constexpr double step(int64_t head_dim) const {
    const double wide = static_cast<double>(std::max<int64_t>(head_dim, 64) - 64) / 64;
    return step_64 + wide * (step_128 - step_64);
  }
};

// What one kernel makes of a problem.
struct Work {
  int64_t units = 0;    // blocks, or clusters of blocks
  int64_t at_once = 1;  // units that the machine holds
  double longest = 0;   // steps of the longest unit
  double average = 0;   // of all
};

// Units of block_q queries that step over block_kv * parts keys at a time.
constexpr Work work_of(const ForwardProblem& p, int64_t block_q, int64_t step_keys,
                       int64_t at_once) {
  Sequence s;
  s.len_q = p.seqlen_q;
  s.len_kv = p.seqlen_kv;
  if (p.alignment == Alignment::bottom_right) s.offset = p.seqlen_kv - p.seqlen_q;
  if (p.alignment == Alignment::given) s.offset = p.causal_offset;
  Work work{.at_once = std::max<int64_t>(at_once, 1)};
  const int64_t tiles = (p.seqlen_q + block_q - 1) / block_q;
  work.units = tiles * p.heads_q * p.batch;
  constexpr int64_t kSampled = 32;  // tiles that are looked at
  const int64_t stride = std::max<int64_t>(1, tiles / kSampled);
  int64_t seen = 0, sum = 0;
  for (int64_t tile = 0; tile < tiles; tile += stride, ++seen) {
    // From the last one on, which sees the most under a causal mask.
    const int64_t first = (tiles - 1 - tile) * block_q;
    const KeyRange keys = visible_keys(s, p.band, first, first + block_q);
    const int64_t steps = (keys.size() + step_keys - 1) / step_keys;
    work.longest = std::max(work.longest, static_cast<double>(steps));
    sum += steps;
  }
  if (seen > 0) work.average = static_cast<double>(sum) / static_cast<double>(seen);
  return work;
}

constexpr double predicted_us(const Work& work, const KernelTimes& times, int64_t head_dim) {
  const double waves = static_cast<double>(work.units) / static_cast<double>(work.at_once);
  const double shared = waves * (times.unit + work.average * times.step(head_dim));
  const double alone = times.unit + work.longest * times.step(head_dim);
  return times.launch + std::max(shared, alone);
}

inline constexpr KernelTimes kSmallTimes{
    .launch = 0.53, .unit = 1.90, .step_64 = 0.79, .step_128 = 1.40};
inline constexpr KernelTimes kBlockTimes{
    .launch = 5.05, .unit = 0.05, .step_64 = 0.79, .step_128 = 1.71};
inline constexpr int64_t kBlockQueries = 128, kBlockKeys = 64;  // of forward_sm80

// What was measured, and so what is predicted: waves of clusters, and steps of 256 keys.
inline constexpr double kMostWaves = 4, kMostSteps = 8;

struct SmallChoice {
  double small_us, block_us;
  bool is_measured;
  constexpr bool is_small() const { return is_measured && small_us < block_us; }
};

constexpr SmallChoice choose_small(const ForwardProblem& p, int64_t multiprocessors) {
  namespace small = cuda::forward_small_sm90;
  const int64_t head_dim = std::max(p.head_dim_qk, p.head_dim_v);
  const Work clusters =
      work_of(p, small::kBlockQ, small::kParts * small::kBlockKv, multiprocessors / small::kRanks);
  const Work blocks = work_of(p, kBlockQueries, kBlockKeys, multiprocessors);
  return {
      predicted_us(clusters, kSmallTimes, head_dim), predicted_us(blocks, kBlockTimes, head_dim),
      static_cast<double>(clusters.units) <= kMostWaves * static_cast<double>(clusters.at_once) &&
          clusters.longest <= kMostSteps};
}

}  // namespace flashcore

// Predicts a kernel's time for a problem: one formula for all kernels, in microseconds.
//
//   unit(steps)   begin_and_end + steps * step, plus `mask` if the problem has one
//   share(n)      the factor of a unit's time if n other units run on the SM: from `alone` with
//                 none to 1 with as many as the tile allows
//   longest       the unit with the most steps, with as many others as there are
//   all, alike    whole waves of as many units as the GPU holds at once, and the rest, which is
//                 faster if fewer units share one SM
//   all, uneven   the units shared out evenly, plus `tail` of the longest one while the last ones
//                 end
//   memory        every input and output once, at the GPU's bandwidth; keys and values again for each
//                 other head of a group, mostly from L2
//
//   time = launch + max(longest, all, memory)
//
// A step is one block of keys for all rows of a unit. Missing rows, and keys that no row sees, take
// no step. The constants are data: src/tuning/gpus.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernel/query_tiles.hpp"
#include "kernel/work_unit.hpp"
#include "problem/problem.hpp"

namespace flashcore::tuning {

// The constants of one tile at one head dimension. `alone` is 1 for a unit that fills its SM.
struct Constants {
  double begin_and_end = 0, step = 0, mask = 0, alone = 1, tail = 0;
};

struct Steps {
  double longest = 0;  // steps of the longest query tile
  double average = 0;  // over all tiles
};

// Steps of query tiles of `block_q` queries, each step over `step_keys` keys.
constexpr Steps steps_of(const ForwardProblem& p, int64_t block_q, int64_t step_keys) {
  Sequence s;
  s.len_q = p.seqlen_q;
  s.len_kv = p.seqlen_kv;
  if (p.alignment == Alignment::bottom_right) s.offset = p.seqlen_kv - p.seqlen_q;
  if (p.alignment == Alignment::given) s.offset = p.causal_offset;
  Steps found;
  const int64_t tiles = tiles_of(p, block_q);
  constexpr int64_t kSampled = 32;  // number of tiles to sample
  const int64_t stride = std::max<int64_t>(1, tiles / kSampled);
  int64_t seen = 0, sum = 0;
  for (int64_t tile = 0; tile < tiles; tile += stride, ++seen) {
    // Starts at the last tile, which sees the most keys under a causal mask.
    const int64_t first = (tiles - 1 - tile) * block_q;
    const KeyRange keys = visible_keys(s, p.band, first, first + block_q);
    const int64_t steps = (keys.size() + step_keys - 1) / step_keys;
    found.longest = std::max(found.longest, static_cast<double>(steps));
    sum += steps;
  }
  if (seen > 0) found.average = static_cast<double>(sum) / static_cast<double>(seen);
  return found;
}

// The inputs of the formula.
struct Work {
  double units_per_sm = 0;  // or per group of SMs, for a unit that spans several
  int64_t units_at_once = 1, most_at_once = 1;
  double longest = 0, average = 0;  // steps
  double bytes = 0;
  bool masked = false, uneven = false;
};

// Reading a key again for another head of its group takes so much of the time of the first read. Measured on one H200:
// 0.36 to 0.70 (tools/tuning/fit_decode.py).
inline constexpr double kReadAgain = 0.48;

// Bytes of every input and output. An input that the batch shares counts once.
constexpr double bytes_of(const ForwardProblem& p) {
  const double element = p.dtype == DType::f32 ? 4 : 2;
  const auto batch = static_cast<double>(p.batch);
  const double shared_kv = !p.packed && p.k.batch == 0 && p.v.batch == 0 ? 1 : batch;
  const auto group = static_cast<double>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  const auto head_dims = static_cast<double>(p.head_dim_qk + p.head_dim_v);
  return element * head_dims *
         (batch * static_cast<double>(p.heads_q) * static_cast<double>(p.seqlen_q) +
          shared_kv * static_cast<double>(p.heads_kv) * static_cast<double>(p.seqlen_kv) *
              (1 + kReadAgain * (group - 1)));
}

constexpr Work work_of(const ForwardProblem& p, const WorkUnit& unit, int64_t multiprocessors) {
  const Steps groups = steps_of(p, unit.group_q, unit.step_keys);
  const int64_t units = units_of(p, unit.block_q);
  const double places =
      static_cast<double>(std::max<int64_t>(units, 1)) * static_cast<double>(unit.block_q);
  const double rows =
      static_cast<double>(units_of(p, unit.group_q)) * static_cast<double>(unit.group_q);
  return {.units_per_sm = static_cast<double>(units) * static_cast<double>(unit.sms) /
                          static_cast<double>(std::max<int64_t>(multiprocessors, 1)),
          .units_at_once = unit.units_at_once,
          .most_at_once = unit.most_at_once,
          .longest = groups.longest,
          .average = groups.average * rows / places,
          .bytes = bytes_of(p),
          .masked = p.band.right >= 0 || p.band.left >= 0,
          .uneven = sees_unevenly(p)};
}

inline double predicted_us(const Work& work, const Constants& constants, double launch,
                           double bytes_per_us) {
  const int64_t at_once = work.units_at_once;
  const double once = constants.begin_and_end + (work.masked ? constants.mask : 0);
  const double unit = once + work.average * constants.step;
  const double longest_unit = once + work.longest * constants.step;
  const auto share = [&](double others) {
    if (work.most_at_once == 1) return 1.0;
    const double part = others / static_cast<double>(work.most_at_once - 1);
    return constants.alone + (1 - constants.alone) * part;
  };

  const double others = std::clamp(work.units_per_sm - 1, 0.0, static_cast<double>(at_once - 1));
  const double others_last = work.longest > 0 ? work.average / work.longest : 1;
  const double longest = share(others * others_last) * longest_unit;

  const double full = share(static_cast<double>(at_once - 1));
  double all = 0;
  if (work.uneven) {
    const double waves = work.units_per_sm / static_cast<double>(at_once);
    all = full * (waves * unit + (waves > 1 ? constants.tail * longest_unit : 0));
  } else {
    const auto most = static_cast<int64_t>(std::ceil(work.units_per_sm));
    const int64_t waves = most / at_once, left = most % at_once;
    all = full * static_cast<double>(waves) * unit;
    if (left > 0) all += share(static_cast<double>(left - 1)) * unit;
  }
  return launch + std::max({longest, all, work.bytes / bytes_per_us});
}

}  // namespace flashcore::tuning

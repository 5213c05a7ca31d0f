// Which kernel for a small problem: the predicted times of forward_sm90_latency, of
// forward_sm90_latency_wide and of the kernel that would run otherwise; where no kernel with
// Hopper's instructions is the choice, those of forward_sm80_latency and forward_sm80_throughput.
//
// All kernels are modelled alike. Units of work (clusters, blocks) go over the machine. A machine
// that is not full takes as long as its longest unit, a full one takes its share of all units:
//
//   time = launch + max(unit + longest * step, waves * (full_unit + average * full_step))
//
// where `step` is what a unit costs for each step over its keys, by head dimension, and a wave is
// as many units as the machine has places. All constants are in the models below, fitted by
// tools/fit_small_choice.py to what flashcore_small_grid measured; tests replay the recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm90/latency/config.hpp"
#include "cuda/forward_sm90/latency_wide/config.hpp"
#include "kernel/query_tiles.hpp"
#include "problem/problem.hpp"

namespace flashcore::tuning {

// Microseconds at head dimension 64 and 128; between them linear.
struct ByHeadDim {
  double at_64, at_128;

  constexpr double at(int64_t head_dim) const {
    const double wide = static_cast<double>(std::max<int64_t>(head_dim, 64) - 64) / 64;
    return at_64 + wide * (at_128 - at_64);
  }
};

// Queries of a unit, keys of a step, and SMs that a unit takes: 2 for a cluster, a half where an SM
// holds two.
struct UnitShape {
  int64_t block_q, step_keys;
  double unit_sms;
};

struct KernelModel {
  double launch, unit;
  ByHeadDim step;
  double full_unit;
  ByHeadDim full_step;
};

// On an H200.
inline constexpr KernelModel kSmallModel{.launch = 1.58008,
                                         .unit = 1.35352,
                                         .step = {0.48828, 1.26367},
                                         .full_unit = 1.14453,
                                         .full_step = {0.63867, 1.50586}};
inline constexpr KernelModel kMediumModel{.launch = 0.27344,
                                          .unit = 2.63086,
                                          .step = {0.79102, 0.79102},
                                          .full_unit = 3.27148,
                                          .full_step = {0.77344, 0.77344}};
// forward_sm90_throughput's tile of 64 rows, two on an SM, is what small problems up to head
// dimension 64 get.
inline constexpr KernelModel kSm90NarrowModel{.launch = 3.01953,
                                              .unit = 0.94141,
                                              .step = {0.76562, 0.76562},
                                              .full_unit = 2.22852,
                                              .full_step = {0.90430, 0.90430}};
inline constexpr KernelModel kSm90Model{.launch = 2.65625,
                                        .unit = 2.83594,
                                        .step = {0.98438, 0.98438},
                                        .full_unit = 3.81641,
                                        .full_step = {1.16016, 1.16016}};
inline constexpr KernelModel kSm80Model{.launch = 2.09961,
                                        .unit = 3.08594,
                                        .step = {0.80664, 1.72461},
                                        .full_unit = 0.01000,
                                        .full_step = {1.18750, 1.49023}};

inline constexpr KernelModel kSmallSm80Model{.launch = 0.73633,
                                             .unit = 0.52734,
                                             .step = {2.20898, 2.46289},
                                             .full_unit = 1.81055,
                                             .full_step = {2.09961, 2.46875}};

// The kernel that would run otherwise.
enum class NextKernel { forward_sm80_throughput, forward_sm90_throughput };

// What one kernel makes of a problem.
struct Work {
  int64_t units = 0;    // blocks, or clusters of blocks
  double longest = 0;   // steps of the longest unit
  double shortest = 0;  // of the shortest
  double average = 0;   // of all
};

constexpr Work work_of(const ForwardProblem& p, int64_t block_q, int64_t step_keys) {
  Sequence s;
  s.len_q = p.seqlen_q;
  s.len_kv = p.seqlen_kv;
  if (p.alignment == Alignment::bottom_right) s.offset = p.seqlen_kv - p.seqlen_q;
  if (p.alignment == Alignment::given) s.offset = p.causal_offset;
  Work work;
  const int64_t tiles = tiles_of(p, block_q);
  work.units = units_of(p, block_q);
  constexpr int64_t kSampled = 32;  // tiles that are looked at
  const int64_t stride = std::max<int64_t>(1, tiles / kSampled);
  int64_t seen = 0, sum = 0;
  for (int64_t tile = 0; tile < tiles; tile += stride, ++seen) {
    // From the last one on, which sees the most under a causal mask.
    const int64_t first = (tiles - 1 - tile) * block_q;
    const KeyRange keys = visible_keys(s, p.band, first, first + block_q);
    const int64_t steps = (keys.size() + step_keys - 1) / step_keys;
    work.longest = std::max(work.longest, static_cast<double>(steps));
    work.shortest = seen == 0 ? static_cast<double>(steps)
                              : std::min(work.shortest, static_cast<double>(steps));
    sum += steps;
  }
  if (seen > 0) work.average = static_cast<double>(sum) / static_cast<double>(seen);
  return work;
}

constexpr double waves_of(const Work& work, const UnitShape& shape, int64_t multiprocessors) {
  return static_cast<double>(work.units) * shape.unit_sms /
         static_cast<double>(std::max<int64_t>(multiprocessors, 1));
}

constexpr double predicted_us(const ForwardProblem& p, const KernelModel& model,
                              const UnitShape& shape, int64_t multiprocessors) {
  const Work work = work_of(p, shape.block_q, shape.step_keys);
  const int64_t head_dim = std::max(p.head_dim_qk, p.head_dim_v);
  const double alone = model.unit + work.longest * model.step.at(head_dim);
  const double full = model.full_unit + work.average * model.full_step.at(head_dim);
  return model.launch + std::max(alone, waves_of(work, shape, multiprocessors) * full);
}

// As the kernels' plans decide.
constexpr UnitShape small_shape(const ForwardProblem& p, int64_t multiprocessors) {
  namespace small = cuda::forward_sm90::latency;
  const bool one_wave = fits_twice(p, small::kBlockQ, multiprocessors);
  const int64_t ranks = small::ranks_of(p.seqlen_kv, one_wave);
  return {small::kBlockQ, ranks * small::kGroups * small::kBlockKv, static_cast<double>(ranks)};
}
// shared_memory: bytes that a block may have. Two blocks of the smaller kind share an SM where that
// is enough for them.
constexpr UnitShape small_sm80_shape(const ForwardProblem& p, int64_t multiprocessors,
                                     int64_t shared_memory) {
  namespace small = cuda::forward_sm80::latency;
  const bool one_wave = units_of(p, small::kBlockQ) <= multiprocessors;
  const int index =
      small::choose_config(p.head_dim_qk, p.head_dim_v, p.seqlen_kv, one_wave, shared_memory);
  const small::Config& config = small::kConfigs[static_cast<std::size_t>(std::max(index, 0))];
  const bool two = 2 * (config.smem_bytes() + small::static_bytes(config)) <= shared_memory;
  return {small::kBlockQ, config.pass_keys(), two ? 0.5 : 1.0};
}
inline constexpr UnitShape kMediumShape{
    cuda::forward_sm90::latency_wide::kBlockQ,
    cuda::forward_sm90::latency_wide::kGroups* cuda::forward_sm90::latency_wide::kBlockKv,
    cuda::forward_sm90::latency_wide::kRanks};

constexpr bool is_wide(const ForwardProblem& p) {
  return std::max(p.head_dim_qk, p.head_dim_v) > 64;
}

constexpr double next_us(const ForwardProblem& p, NextKernel next, int64_t multiprocessors) {
  if (next == NextKernel::forward_sm80_throughput) {
    return predicted_us(p, kSm80Model, {128, 64, 1}, multiprocessors);
  }
  if (is_wide(p)) return predicted_us(p, kSm90Model, {128, 128, 1}, multiprocessors);
  return predicted_us(p, kSm90NarrowModel, {64, 128, 0.5}, multiprocessors);
}

// What was measured, and so what is predicted: waves of clusters, and steps of 256 keys.
inline constexpr double kMostWaves = 8, kMostSteps = 8;
inline constexpr UnitShape kMeasuredShape{cuda::forward_sm90::latency::kBlockQ, 256, 2};

struct SmallChoice {
  double small_us, next_us;
  double medium_us = std::numeric_limits<double>::infinity();  // no candidate
  bool is_measured;
  constexpr bool is_small() const { return is_measured && small_us < std::min(medium_us, next_us); }
  constexpr bool is_medium() const { return is_measured && !is_small() && medium_us < next_us; }
};

constexpr bool is_measured(const ForwardProblem& p, int64_t multiprocessors) {
  const Work work = work_of(p, kMeasuredShape.block_q, kMeasuredShape.step_keys);
  return waves_of(work, kMeasuredShape, multiprocessors) <= kMostWaves &&
         work.longest <= kMostSteps;
}

constexpr SmallChoice choose_small(const ForwardProblem& p, int64_t multiprocessors,
                                   NextKernel next) {
  SmallChoice choice{
      .small_us = predicted_us(p, kSmallModel, small_shape(p, multiprocessors), multiprocessors),
      .next_us = next_us(p, next, multiprocessors),
      .is_measured = is_measured(p, multiprocessors)};
  // It pads head dimensions to 128, and is not for those that need not be.
  if (is_wide(p)) {
    choice.medium_us = predicted_us(p, kMediumModel, kMediumShape, multiprocessors);
  }
  return choice;
}

// forward_sm80_latency as `small`, beside forward_sm80_throughput. Both were measured on an H200;
// for other GPUs the model goes by their SMs and shared memory.
constexpr SmallChoice choose_small_sm80(const ForwardProblem& p, int64_t multiprocessors,
                                        int64_t shared_memory) {
  const UnitShape shape = small_sm80_shape(p, multiprocessors, shared_memory);
  return {.small_us = predicted_us(p, kSmallSm80Model, shape, multiprocessors),
          .next_us = next_us(p, NextKernel::forward_sm80_throughput, multiprocessors),
          .is_measured = is_measured(p, multiprocessors)};
}

}  // namespace flashcore::tuning

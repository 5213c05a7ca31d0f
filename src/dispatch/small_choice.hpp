// Small problem or not: the predicted times of forward_small_sm90 and of the kernel that would run
// otherwise.
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

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/split.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// Microseconds at head dimension 64 and 128; between them linear.
struct ByHeadDim {
  double at_64, at_128;

  constexpr double at(int64_t head_dim) const {
    const double wide = static_cast<double>(std::max<int64_t>(head_dim, 64) - 64) / 64;
    return at_64 + wide * (at_128 - at_64);
  }
};

struct KernelModel {
  int64_t block_q, step_keys;  // queries of a unit, keys of a step
  double unit_sms;             // SMs that a unit takes: 2 for a cluster, a half for one of two
  double launch, unit;
  ByHeadDim step;
  double full_unit;
  ByHeadDim full_step;
};

// On an H200.
inline constexpr KernelModel kSmallModel{
    .block_q = cuda::forward_small_sm90::kBlockQ,
    .step_keys = cuda::forward_small_sm90::kParts * cuda::forward_small_sm90::kBlockKv,
    .unit_sms = cuda::forward_small_sm90::kRanks,
    .launch = 1.764,
    .unit = 0.498,
    .step = {0.953, 1.418},
    .full_unit = 1.084,
    .full_step = {0.570, 1.424}};
// forward_sm90's tile of 64 rows, two on an SM, is what small problems up to head dimension 64 get.
inline constexpr KernelModel kSm90NarrowModel{.block_q = 64,
                                              .step_keys = 128,
                                              .unit_sms = 0.5,
                                              .launch = 4.746,
                                              .unit = 0.010,
                                              .step = {1.482, 1.500},
                                              .full_unit = 0.842,
                                              .full_step = {1.652, 1.500}};
inline constexpr KernelModel kSm90Model{.block_q = 128,
                                        .step_keys = 128,
                                        .unit_sms = 1,
                                        .launch = 0.010,
                                        .unit = 5.721,
                                        .step = {1.000, 1.266},
                                        .full_unit = 7.971,
                                        .full_step = {1.000, 0.893}};
inline constexpr KernelModel kSm80Model{.block_q = 128,
                                        .step_keys = 64,
                                        .unit_sms = 1,
                                        .launch = 3.010,
                                        .unit = 1.947,
                                        .step = {0.811, 1.725},
                                        .full_unit = 0.010,
                                        .full_step = {1.043, 1.447}};

// The kernel that runs where forward_small_sm90 does not.
enum class NextKernel { forward_sm80, forward_sm90 };

constexpr const KernelModel& model_of(NextKernel kernel, const ForwardProblem& p) {
  if (kernel == NextKernel::forward_sm80) return kSm80Model;
  return std::max(p.head_dim_qk, p.head_dim_v) <= 64 ? kSm90NarrowModel : kSm90Model;
}

// What one kernel makes of a problem.
struct Work {
  int64_t units = 0;   // blocks, or clusters of blocks
  double longest = 0;  // steps of the longest unit
  double average = 0;  // of all
};

constexpr Work work_of(const ForwardProblem& p, int64_t block_q, int64_t step_keys) {
  Sequence s;
  s.len_q = p.seqlen_q;
  s.len_kv = p.seqlen_kv;
  if (p.alignment == Alignment::bottom_right) s.offset = p.seqlen_kv - p.seqlen_q;
  if (p.alignment == Alignment::given) s.offset = p.causal_offset;
  Work work;
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

constexpr double waves_of(const Work& work, const KernelModel& model, int64_t multiprocessors) {
  return static_cast<double>(work.units) * model.unit_sms /
         static_cast<double>(std::max<int64_t>(multiprocessors, 1));
}

constexpr double predicted_us(const ForwardProblem& p, const KernelModel& model,
                              int64_t multiprocessors) {
  const Work work = work_of(p, model.block_q, model.step_keys);
  const int64_t head_dim = std::max(p.head_dim_qk, p.head_dim_v);
  const double alone = model.unit + work.longest * model.step.at(head_dim);
  const double full = model.full_unit + work.average * model.full_step.at(head_dim);
  return model.launch + std::max(alone, waves_of(work, model, multiprocessors) * full);
}

// What was measured, and so what is predicted: waves of clusters, and steps of 256 keys.
inline constexpr double kMostWaves = 8, kMostSteps = 8;

struct SmallChoice {
  double small_us, next_us;
  bool is_measured;
  constexpr bool is_small() const { return is_measured && small_us < next_us; }
};

constexpr SmallChoice choose_small(const ForwardProblem& p, int64_t multiprocessors,
                                   NextKernel next) {
  const Work work = work_of(p, kSmallModel.block_q, kSmallModel.step_keys);
  return {predicted_us(p, kSmallModel, multiprocessors),
          predicted_us(p, model_of(next, p), multiprocessors),
          waves_of(work, kSmallModel, multiprocessors) <= kMostWaves && work.longest <= kMostSteps};
}

}  // namespace flashcore

// Recomputes outputs that are not finite, one by one and exactly, and the LSE of
// their rows. Rows whose reference is too large (attention/large_reference.hpp)
// are included: their outputs have been made infinite.
//
// A Tensor Core product multiplies every probability of a tile by every value,
// and 0 * NaN is NaN: a NaN or infinity in V reaches rows whose mask removes its
// key. If a warp finds such an output, it recomputes the row from global memory,
// visiting only the keys that the row sees. This is slow, and almost never runs.
#pragma once

#include <cstdint>

#include "cuda/attention/latency/task.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/attention/units.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::attention::latency {

// Returns the raw score of one query and key.
template <class Element>
__device__ inline float exact_score(const uint16_t* q, const uint16_t* k, int head_dim) {
  float dot = 0;
  for (int d = 0; d < head_dim; ++d) {
    dot = fmaf(Element::to_float(q[d]), Element::to_float(k[d]), dot);
  }
  return dot;
}

struct ExactOutput {
  float value, lse;
};

// Computes column `column` (different in every lane) of one query's output, by the
// whole warp. Lanes whose column is past head_dim_v help with scores. The largest
// score is subtracted before scaling, which is exact for all scores that count.
template <class Element>
__device__ inline ExactOutput exact_output(const Params& p, const Task& task, int query,
                                           int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint16_t* const q = row_pointer(p.q, task.batch, task.head, task.q_row + query);
  const ColumnRange keys = visible_columns(task.limits, query, 0);
  const int begin = max(keys.begin, 0);
  const bool stores = column < p.head_dim_v;
  float largest = kNoKey, sum = 0, output = 0;
  float nonfinite = 0;  // attended NaN and infinities: a weight is positive and changes neither
  for (int first = begin; first < keys.end; first += 32) {
    const int key = first + lane;
    const float score =
        key < keys.end
            ? exact_score<Element>(q, row_pointer(p.k, task.batch, task.kv_head, task.kv_row + key),
                                   p.head_dim_qk)
            : kNoKey;
    const float raised = fmaxf(largest, warp_max(score));
    const float reference = raised == kNoKey ? 0.0F : raised;
    const float rescale = ptx::exp2_approx((largest - reference) * p.scale_log2);
    const float weight = ptx::exp2_approx((score - reference) * p.scale_log2);
    largest = raised;
    sum *= rescale;
    output *= rescale;
    for (int i = 0; i < min(32, keys.end - first); ++i) {
      const float its_weight = __shfl_sync(0xffffffffU, weight, i);
      sum += its_weight;
      if (!stores) continue;
      const float value = Element::to_float(
          row_pointer(p.v, task.batch, task.kv_head, task.kv_row + first + i)[column]);
      if (isfinite(value)) {
        output = fmaf(its_weight, value, output);
      } else {
        nonfinite += value;
      }
    }
  }
  return {.value = sum == 0 ? 0.0F : output / sum + nonfinite,
          .lse = fmaf(largest, p.scale_log2 * kLn2, __logf(sum))};
}

// Recomputes rows from `first` on, kRowLanes lanes of the warp per row, if one of these lanes
// is in `lanes`: its outputs are not finite. Computes the 32 * pieces columns from first_column
// on. Out of line, and derives everything again, so that nothing need be kept for it.
template <class Element, bool kVaries, int kRowLanes>
__device__ __noinline__ void store_exactly(const Params& p, uint32_t lanes, int first,
                                           int first_column, int pieces) {
  constexpr uint32_t kRowMask = (1U << kRowLanes) - 1;
  const Task task = find_task_at<kVaries>(p, first, 1);
  auto* const o = static_cast<uint16_t*>(p.o) + task.batch * p.o_batch + task.head * p.o_head;
  for (int row = first; row < first + 32 / kRowLanes; ++row, lanes >>= kRowLanes) {
    if ((lanes & kRowMask) == 0) continue;
    for (int piece = 0; piece < pieces; ++piece) {
      const int column = first_column + 32 * piece + static_cast<int>(threadIdx.x) % 32;
      const ExactOutput exact = exact_output<Element>(p, task, row, column);
      const int64_t place = task.q_row + row;
      if (column < p.head_dim_v) {
        o[place * p.o_row + column] = static_cast<uint16_t>(Element::pack(exact.value, 0));
      }
      if (column == 0 && p.lse != nullptr) {
        p.lse[task.batch * p.lse_batch + task.head * p.lse_head + place * p.lse_row] = exact.lse;
      }
    }
  }
}

}  // namespace flashcore::cuda::attention::latency

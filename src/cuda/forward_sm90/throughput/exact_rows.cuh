// Recomputes O and LSE of a warp's 16 rows key by key from global memory, if an output
// is not finite although its row's sum is, or if a row's reference is too large.
//
// The largest score is subtracted before scaling. This is exact for all
// scores that contribute, so a row is right however large its scores are.
//
// A product multiplies every probability of a block by every value, and 0 * NaN
// is NaN: a NaN in V would reach rows whose mask removes its key. Here a row
// reads only the keys that it sees. A value that is not finite is added unscaled:
// a probability is positive, so p * NaN = NaN and p * Inf = Inf for every p.
#pragma once

#include <cstdint>

#include "cuda/attention/softcap.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_sm90/throughput/options.cuh"
#include "cuda/forward_sm90/throughput/scores.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/forward_sm90/throughput/task.cuh"
#include "cuda/ptx/registers.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

__device__ inline const uint16_t* row_pointer(const attention::RowMatrix& m, int batch, int head,
                                              int row) {
  return static_cast<const uint16_t*>(m.data) + batch * m.batch + head * m.head + row * m.row;
}

// Returns the row of K or V in the pages that belongs to key `key` of a sequence.
__device__ __forceinline__ const uint16_t* paged_row(const PagedParams& p,
                                                     const attention::RowMatrix& m,
                                                     const TaskInfo& task, int in_table, int key) {
  attention::CachedEntry at{};
  at.entry.kv_row = task.kv_row;
  at.in_table = in_table;
  const attention::CachedKey found = attention::find_cached_key(
      p.cache, at, 0, key, [](const int32_t* number) { return __ldg(number); });
  return row_pointer(m, found.lead, task.kv_head, found.row);
}

// The dot product of two rows.
template <class Element>
__device__ inline float dot(const uint16_t* a, const uint16_t* b, int count) {
  float sum = 0;
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    sum = fmaf(Element::to_float(a[i]), Element::to_float(b[i]), sum);
  }
  return sum;
}

// Returns the row's sink, or kNoKey.
__device__ inline float sink_of(const Params& p, int head) {
  return p.sinks == nullptr ? kNoKey : p.sinks[head * p.sinks_step];
}

__device__ inline uint16_t* output_row(const Params& p, const TaskInfo& task, int row) {
  return static_cast<uint16_t*>(p.o) + task.batch * p.o_batch + task.head * p.o_head +
         (task.q_row + row) * p.o_row;
}

// The keys [begin, end) of a row.
struct SeenKeys {
  int begin, end;
};

// Leaves out the words at both ends that have no key that the mask shows.
__device__ __forceinline__ SeenKeys seen_keys(const uint32_t* words, SeenKeys keys, int lane) {
  if (keys.begin >= keys.end) return keys;
  int first = keys.end, last = keys.begin;
#pragma unroll 1
  for (int from = keys.begin / 32; 32 * from < keys.end; from += 32) {
    const int key = 32 * (from + lane);
    if (key >= keys.end || __ldg(words + from + lane) == 0) continue;
    first = min(first, max(keys.begin, key));
    last = max(last, min(keys.end, key + 32));
  }
  __syncwarp();
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    first = min(first, __shfl_xor_sync(0xffffffffU, first, d));
    last = max(last, __shfl_xor_sync(0xffffffffU, last, d));
  }
  return {first, last};
}

// A natural score with its options, or kNoKey. `product`: of the query and the key.
__device__ __forceinline__ float natural_score(const OptionParams& p, const TaskOptions& options,
                                               float product, int query, int key) {
  float score = p.natural_cap.cap_log2 > 0 ? attention::capped_log2(product, p.natural_cap)
                                           : product * p.scale;
  if (p.alibi_slopes.data != nullptr) {
    const auto distance = static_cast<float>(llabs(query + options.diagonal - key));
    score = fmaf(options.slope, -distance, score);
  }
  if (p.bias.data != nullptr) {
    const float bias = load_bias(p, options.bias, query * p.bias.query + key);
    score = bias == kNoKey ? kNoKey : score + bias;
  }
  return score;
}
__device__ __forceinline__ bool mask_shows(const OptionParams& p, const TaskOptions& options,
                                           int query, int key) {
  if (p.mask.words == nullptr) return true;
  return (__ldg(options.words + query * p.mask.query + key / 32) >> (key % 32) & 1U) != 0;
}

// Computes rows first_row .. + 15 of the tile. Inlined, and with loop bounds known to be uniform:
// a call, or a loop that lanes may leave one by one, would cost the main loop its uniform
// registers.
template <class S>
__device__ __forceinline__ void compute_rows_exactly(const typename S::KernelParams& p,
                                                     const TaskInfo& task, int in_table,
                                                     const TaskOptions* options, int first_row,
                                                     int lane) {
  __syncwarp();  // other lanes have stored what they had
  using Element = typename S::Element;
  constexpr int kColumns = (S::kConfig.head_dim_v + 31) / 32;  // per lane, 32 apart
  const int kv_head = task.kv_head;
  // From scores to units of log2, and to the caller's units.
  const float to_log2 = S::kOptions ? kLog2E : S::kFeatures ? 1.0F : p.scale_log2;
  const float to_natural = S::kOptions ? 1.0F : S::kFeatures ? kLn2 : p.scale;
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    const int row = first_row + i;
    const int query = task.first_query + row;
    if (ptx::uniform(query < task.rows_q) == 0) break;
    int begin = static_cast<int>(ptx::uniform(max(0, query + task.limits.low)));
    int end = static_cast<int>(ptx::uniform(
        query < task.len_q ? min(task.limits.len_kv, query + task.limits.high + 1) : begin));
    if constexpr (S::kOptions) {
      if (p.mask.words != nullptr) {
        const SeenKeys seen = seen_keys(options->words + query * p.mask.query, {begin, end}, lane);
        begin = static_cast<int>(ptx::uniform(seen.begin));
        end = static_cast<int>(ptx::uniform(seen.end));
      }
    }
    const uint16_t* const q = row_pointer(p.q, task.batch, task.head, task.q_row + row);
    float largest = kNoKey, sum = 0;
    float o[kColumns] = {}, not_finite[kColumns] = {};
#pragma unroll 1
    for (int first = begin; first < end; first += 32) {
      const int key = first + lane;
      float score = kNoKey;
      bool shown = key < end;
      if constexpr (S::kOptions) shown = shown && mask_shows(p, *options, query, key);
      if (shown) {
        if constexpr (S::kPaged) {
          score = dot<Element>(q, paged_row(p, p.k, task, in_table, key), p.head_dim_qk);
        } else {
          const uint16_t* const k = row_pointer(p.k, task.batch, kv_head, task.kv_row + key);
          score = dot<Element>(q, k, p.head_dim_qk);
        }
        if constexpr (S::kFeatures) {
          score = p.softcap.cap_log2 > 0 ? attention::capped_log2(score, p.softcap)
                                         : score * p.scale_log2;
        }
        if constexpr (S::kOptions) score = natural_score(p, *options, score, query, key);
        if constexpr (S::kOptions) shown = score != kNoKey;  // its value, even NaN, does not count
      }
      const float raised = fmaxf(largest, attention::warp_max(score));
      const float reference = attention::finite_reference(raised);
      const float rescale = ptx::exp2_approx((largest - reference) * to_log2);
      const float weight = shown ? ptx::exp2_approx((score - reference) * to_log2) : 0.0F;
      largest = raised;
      sum = sum * rescale + weight;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) o[i] *= rescale;
#pragma unroll 1
      for (int j = 0; j < min(32, end - first); ++j) {
        const float w = __shfl_sync(0xffffffffU, weight, j);
        if constexpr (S::kOptions) {
          if (ptx::uniform(__shfl_sync(0xffffffffU, static_cast<uint32_t>(shown), j)) == 0)
            continue;
        }
        const uint16_t* v = nullptr;
        if constexpr (S::kPaged) {
          v = paged_row(p, p.v, task, in_table, first + j);
        } else {
          v = row_pointer(p.v, task.batch, kv_head, task.kv_row + first + j);
        }
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          if (lane + 32 * i >= p.head_dim_v) continue;
          const float value = Element::to_float(v[lane + 32 * i]);
          if (isfinite(value)) {
            o[i] = fmaf(w, value, o[i]);
          } else {
            not_finite[i] += value;
          }
        }
      }
    }
    sum = attention::warp_sum(sum);
    const float sink = sink_of(p, task.head), natural = largest * to_natural;
    const float top = fmaxf(natural, sink), reference = attention::finite_reference(top);
    const float factor = ptx::exp2_approx((natural - reference) * kLog2E);
    const float all =
        sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx((sink - top) * kLog2E));
    if (p.lse != nullptr && !(sum == 0 && sink == -kNoKey)) {  // else it is there
      p.lse[task.batch * p.lse_batch + task.head * p.lse_head + (task.q_row + row) * p.lse_row] =
          top + __log2f(all) * kLn2;
    }
    uint16_t* const out = output_row(p, task, row);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (lane + 32 * i >= p.head_dim_v) continue;
      const float value = sum == 0 ? 0.0F : __fdividef(o[i] * factor, all) + not_finite[i];
      out[lane + 32 * i] = static_cast<uint16_t>(Element::pack(value, 0));
    }
  }
}

}  // namespace flashcore::cuda::forward_sm90::throughput

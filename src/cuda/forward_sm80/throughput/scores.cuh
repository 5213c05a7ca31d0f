// The operations on a tile of scores between Q K^T and the softmax.
//
// With features, the resulting scores are in units of log2, or natural if the
// softmax is exact; without, they are raw, and the softmax scales them. The
// order is docs/semantics.md's: scale, softcap, bias, ALiBi, masks.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/softcap.cuh"
#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/key_order.hpp"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// Finite natural scores may be infinite in units of log2, such as a bias of finfo.min.
enum class Units { natural, log2 };
template <Units kUnits>
inline constexpr float kPerNatural = kUnits == Units::log2 ? kLog2E : 1.0F;

// A lane's position: its row of each slot is row + 16 * group + 8 * slot;
// its keys of product n are column + key_distance(order, n, 0) and the next.
struct LanePlace {
  int row;     // query, in the sequence
  int column;  // first_key_of_lane
};

// Masks scores outside the band and the length, by selection: the old score does not matter.
template <KeyOrder kOrder, int kGroups, int kProducts>
__device__ __forceinline__ void mask_band(Scores<kGroups, kProducts>& s,
                                          const attention::BandLimits& limits,
                                          const LanePlace& lane, int first_key) {
  const auto distance = [](int n, int e) { return key_distance(kOrder, n, e); };
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const attention::ColumnRange seen =
          attention::visible_columns(limits, lane.row + 16 * g + 8 * slot, first_key + lane.column);
      attention::mask_row(s[g], slot, seen, distance);
    }
  }
}

// cap * tanh(s * scale / cap). kExact: for fp32, with a tanh accurate to the last bit or two.
template <Units kUnits, bool kExact, int kGroups, int kProducts>
__device__ __forceinline__ void scale_scores(Scores<kGroups, kProducts>& s, const Params& p) {
  // attention/softcap.hpp is valid in any units that scale and cap share.
  const attention::SoftcapParams cap =
      kUnits == Units::log2 ? p.softcap
                            : attention::SoftcapParams{p.softcap.rate, p.softmax_scale, p.cap};
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& score = s[g][n][e];
        if (p.cap > 0) {
          const float x = score * cap.rate;
          if (!kExact) {
            score = attention::capped_log2(score, cap);
          } else if (fabsf(x) > attention::kCapNear) {
            score = cap.cap_log2 * tanhf(x);
          } else {
            score *= cap.scale_log2 * attention::tanh_ratio(x * x);
          }
        } else {
          score *= cap.scale_log2;
        }
      }
    }
  }
}

// Visits every score with the bias or mask element of its pair, which `read_pair(offset)`
// reads two neighbours at a time, or `read(offset)` one by one. Rows and keys past the
// lengths read the last one that exists; the band masks them afterwards.
template <bool kInPairs, int kGroups, int kProducts, class ReadPair, class Read, class Visit>
__device__ __forceinline__ void visit_pairs(Scores<kGroups, kProducts>& s, const PairMatrix& m,
                                            const Task& task, const LanePlace& lane, int first_key,
                                            ReadPair read_pair, Read read, Visit visit) {
  const int len_kv = static_cast<int>(task.sequence.len_kv);
  const int last_query = static_cast<int>(task.sequence.len_q) - 1;
  const int64_t head = task.batch * m.batch + task.head * m.head;
  if (kInPairs && m.in_pairs && first_key + 8 * kProducts <= len_kv) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const int64_t row = head + min(lane.row + 16 * g + 8 * slot, last_query) * m.query +
                            first_key + lane.column;
#pragma unroll
        for (int n = 0; n < kProducts; ++n) {
          const auto pair = read_pair(row + 8 * n);
          visit(s[g][n][2 * slot], pair.x);
          visit(s[g][n][2 * slot + 1], pair.y);
        }
      }
    }
    return;
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int64_t row = head + min(lane.row + 16 * g + 8 * slot, last_query) * m.query;
#pragma unroll
      for (int n = 0; n < kProducts; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = min(first_key + lane.column + 8 * n + e, len_kv - 1);
          visit(s[g][n][2 * slot + e], read(row + key * m.key));
        }
      }
    }
  }
}

// A bias of -inf removes its pair, even if the score was NaN.
__device__ __forceinline__ void add_one_bias(float& score, float bias) {
  score = bias == kNoKey ? kNoKey : score + bias;
}

// Adds the bias to natural scores.
template <bool kInPairs, int kGroups, int kProducts>
__device__ __forceinline__ void add_bias(Scores<kGroups, kProducts>& s, const Params& p,
                                         const Task& task, const LanePlace& lane, int first_key) {
  const auto add = [](float& score, float bias) { add_one_bias(score, bias); };
  if (p.bias_type == ElementType::f32) {
    const auto* const data = static_cast<const float*>(p.bias.data);
    visit_pairs<kInPairs>(
        s, p.bias, task, lane, first_key,
        [=](int64_t at) { return __ldg(reinterpret_cast<const float2*>(data + at)); },
        [=](int64_t at) { return __ldg(data + at); }, add);
  } else {
    const auto* const data = static_cast<const uint16_t*>(p.bias.data);
    const bool f16 = p.bias_type == ElementType::f16;
    const auto value = [=](uint16_t bits) {
      return f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
    };
    visit_pairs<kInPairs>(
        s, p.bias, task, lane, first_key,
        [=](int64_t at) {
          const ushort2 pair = __ldg(reinterpret_cast<const ushort2*>(data + at));
          return make_float2(value(pair.x), value(pair.y));
        },
        [=](int64_t at) { return value(__ldg(data + at)); }, add);
  }
}

// Returns the ALiBi term per key of distance from the diagonal.
template <Units kUnits>
__device__ __forceinline__ float alibi_step(const Params& p, const Task& task) {
  const HeadVector& slopes = p.alibi_slopes;
  return -kPerNatural<kUnits> *
         __ldg(slopes.data + task.batch * slopes.batch + task.head * slopes.head);
}

template <KeyOrder kOrder, Units kUnits, int kGroups, int kProducts>
__device__ __forceinline__ void add_alibi(Scores<kGroups, kProducts>& s, const Params& p,
                                          const Task& task, const LanePlace& lane, int first_key) {
  constexpr int64_t kExact = 1 << 23;  // integers are exact in fp32 up to twice that
  const float step = alibi_step<kUnits>(p, task);
  const int64_t distance = lane.row + task.sequence.offset - first_key - lane.column;
  if (distance < kExact && distance > -kExact) {
    const auto from = static_cast<float>(static_cast<int>(distance));
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int n = 0; n < kProducts; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const auto further =
              static_cast<float>(16 * g + 8 * (e / 2) - key_distance(kOrder, n, e % 2));
          s[g][n][e] = fmaf(step, fabsf(from + further), s[g][n][e]);
        }
      }
    }
    return;
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int further = 16 * g + 8 * (e / 2) - key_distance(kOrder, n, e % 2);
        s[g][n][e] = fmaf(step, static_cast<float>(abs(distance + further)), s[g][n][e]);
      }
    }
  }
}

// Applies all features that change scores, except the band. Scores
// are natural afterwards, or raw if only masks are present.
template <bool kExact, bool kInPairs, int kGroups, int kProducts>
__device__ __forceinline__ void apply_features(Scores<kGroups, kProducts>& s, const Params& p,
                                               const Task& task, const LanePlace& lane,
                                               int first_key) {
  if (p.scores_natural) scale_scores<Units::natural, kExact>(s, p);
  // The bias comes last, as one of -inf removes whatever a slope made of the score.
  if (p.alibi_slopes.data != nullptr)
    add_alibi<KeyOrder::plain, Units::natural>(s, p, task, lane, first_key);
  if (p.bias.data != nullptr) add_bias<kInPairs>(s, p, task, lane, first_key);
  if (p.mask.data != nullptr) {
    const auto* const data = static_cast<const uint8_t*>(p.mask.data);
    visit_pairs<kInPairs>(
        s, p.mask, task, lane, first_key,
        [=](int64_t at) { return __ldg(reinterpret_cast<const uchar2*>(data + at)); },
        [=](int64_t at) { return __ldg(data + at); },
        [](float& score, uint8_t attend) { score = attend != 0 ? score : kNoKey; });
  }
}

// In the pass that counts kinds, every pair that is not removed weighs 1.
template <int kGroups, int kProducts>
__device__ __forceinline__ void level_scores(Scores<kGroups, kProducts>& s) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[g][n][e] = s[g][n][e] == kNoKey ? kNoKey : 0.0F;
    }
  }
}

// Returns the largest magnitude among this lane's scores; NaN is ignored.
template <int kGroups, int kProducts>
__device__ __forceinline__ float largest_of(const Scores<kGroups, kProducts>& s) {
  float largest = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) largest = fmaxf(largest, fabsf(s[g][n][e]));
    }
  }
  return largest;
}

// A block's dropout key, in shared memory.
__device__ __forceinline__ PhiloxKey dropout_key_of(const StateParams&) {
  return ptx::static_shared<PhiloxKey>();
}
__device__ __forceinline__ void keep_dropout_key(const StateParams& p) {
  ptx::static_shared<PhiloxKey>() =
      p.dropout_state == nullptr
          ? p.dropout_key
          : dropout_key(static_cast<uint64_t>(__ldg(p.dropout_state)),
                        static_cast<uint64_t>(__ldg(p.dropout_state + p.dropout_state_step)));
}

// Zeroes the probabilities of dropped pairs; the others are rescaled with the output. `kinds`:
// sets weights instead (element.cuh). One Philox block serves four keys, two of this lane and two
// of its neighbour: the even lane draws for slot 0, the odd one for slot 1, and they exchange.
template <int kGroups, int kProducts, class P>
__device__ __forceinline__ void drop(Scores<kGroups, kProducts>& s, const P& p, const Task& task,
                                     const LanePlace& lane, int first_key, bool kinds) {
  const bool odd = (lane.column & 2) != 0;
  const uint32_t group = static_cast<uint32_t>(first_key + lane.column) / 4;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const auto row = static_cast<uint32_t>(lane.row + 16 * g + (odd ? 8 : 0));
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
      const PhiloxBlock mine = dropout_words(dropout_key_of(p), static_cast<uint32_t>(task.batch),
                                             static_cast<uint32_t>(task.head), row, group + 2U * n);
      const uint32_t got0 = __shfl_xor_sync(0xffffffffU, odd ? mine[0] : mine[2], 1);
      const uint32_t got1 = __shfl_xor_sync(0xffffffffU, odd ? mine[1] : mine[3], 1);
      const uint32_t words[4] = {odd ? got0 : mine[0], odd ? got1 : mine[1], odd ? mine[2] : got0,
                                 odd ? mine[3] : got1};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool dropped = words[e] < p.dropout_threshold;
        if (kinds) {
          s[g][n][e] *= dropped ? kDropoutKinds.dropped : kDropoutKinds.kept;
        } else if (dropped) {
          s[g][n][e] = 0;
        }
      }
    }
  }
}

}  // namespace flashcore::cuda::forward_sm80::throughput

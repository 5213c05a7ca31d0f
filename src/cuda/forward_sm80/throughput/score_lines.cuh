// P of a hot tile with exactly one of softcap, bias and ALiBi: straight-line
// code like the plain line, and like it without a maximum. All other tiles,
// and combinations of these options, are processed in slices.
//
//   softcap   2^(s t(s^2) - reference), with a polynomial t valid for scores well below the cap;
//             the fourth powers of a tile's scores are summed, and the sum is checked
//             afterwards
//   ALiBi     2^((s scale + row constant) + step * column), for tiles on one side of the diagonal
//   bias      2^(s scale + (bias log2 e - reference))
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/forward_sm80/throughput/fetched_bias.cuh"
#include "cuda/forward_sm80/throughput/scores.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/warp_math.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// Returns the reference of a lane's row of a slot: from `references` if registers are scarce.
template <Config kConfig>
__device__ __forceinline__ float reference_of(const WarpState<kConfig>& w, const float* references,
                                              int slot) {
  if constexpr (kConfig.spares_registers(Features::scores)) return w.reference[slot / 2][slot % 2];
  return references[8 * slot];
}

// Sets `wrong` if a lane's scores come too near the cap.
template <Config kConfig, int kProducts>
__device__ __forceinline__ void exponentiate_capped(Scores<kConfig.row_groups, kProducts>& s,
                                                    WarpState<kConfig>& w, const Params& p,
                                                    const float* references, bool& wrong) {
  float fourth[4] = {0, 0, 0, 0};
  float base[kConfig.row_groups][2];
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
    base[g][0] = reference_of(w, references, 2 * g);
    base[g][1] = reference_of(w, references, 2 * g + 1);
  }
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float square = s[g][n][e] * s[g][n][e];
        fourth[e] = fmaf(square, square, fourth[e]);
        float t = fmaf(square, p.cap_terms[3], p.cap_terms[2]);
        t = fmaf(square, t, p.cap_terms[1]);
        t = fmaf(square, t, p.cap_terms[0]);
        s[g][n][e] = ptx::exp2_approx(fmaf(s[g][n][e], t, -base[g][e / 2]));
      }
      w.sum[g][0] += s[g][n][0] + s[g][n][1];
      w.sum[g][1] += s[g][n][2] + s[g][n][3];
    }
  }
  if ((fourth[0] + fourth[1]) + (fourth[2] + fourth[3]) > p.cap_fourth) wrong = true;
}

// The largest ALiBi step, in log2 per key, for which the line is accurate: its
// exponents are relative to the far end of a tile, and lose the last bits of 64 steps.
inline constexpr float kSteepest = 16;

// The warp's context of a line besides the tile; kept in registers if there are enough.
struct LineContext {
  const unsigned char* bias;  // at the warp's first row and key 0
  float alibi_step;
  int diagonal;    // the key on the diagonal of the warp's first row
  bool rows_left;  // all rows of the warp exist
};

template <Config kConfig>
__device__ __forceinline__ LineContext line_context(const Params& p, const Task& task,
                                                    int first_row) {
  LineContext context{};
  if (p.score_line == ScoreLine::bias) {
    const int64_t bytes = p.bias_type == ElementType::f32 ? 4 : 2;
    context.bias =
        static_cast<const unsigned char*>(p.bias.data) +
        bytes * (task.batch * p.bias.batch + task.head * p.bias.head + first_row * p.bias.query);
  }
  if (p.score_line == ScoreLine::alibi) context.alibi_step = alibi_step<Units::log2>(p, task);
  context.diagonal = first_row + static_cast<int>(task.sequence.offset);
  context.rows_left = first_row + kConfig.warp_rows() <= task.sequence.len_q;
  return context;
}

// The position of the KV tile from first_key on, for all rows
// of the warp: 1 before the diagonal, -1 behind it, 0 neither.
template <Config kConfig>
__device__ __forceinline__ int alibi_side(int diagonal, int first_key) {
  if (diagonal >= first_key + kConfig.block_kv - 1) return 1;
  return diagonal + kConfig.warp_rows() - 1 <= first_key ? -1 : 0;
}

// `distance`: from the lane's first key to the diagonal of its first row.
template <Config kConfig, int kProducts>
__device__ __forceinline__ void exponentiate_alibi(Scores<kConfig.row_groups, kProducts>& s,
                                                   WarpState<kConfig>& w, float scale,
                                                   const float* references, float step,
                                                   float distance) {
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
    float base[2];
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      base[slot] = fmaf(step, distance + static_cast<float>(16 * g + 8 * slot),
                        -reference_of(w, references, 2 * g + slot));
    }
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float column = static_cast<float>(-key_distance(KeyOrder::quads, n, e % 2));
        s[g][n][e] = ptx::exp2_approx(fmaf(step, column, fmaf(s[g][n][e], scale, base[e / 2])));
      }
      w.sum[g][0] += s[g][n][0] + s[g][n][1];
      w.sum[g][1] += s[g][n][2] + s[g][n][3];
    }
  }
}

// Processes the rows of one slot, 8 rows apart.
template <Config kConfig, ElementType kType, int kProducts>
__device__ __forceinline__ void exponentiate_biased(Scores<kConfig.row_groups, kProducts>& s,
                                                    WarpState<kConfig>& w, float scale,
                                                    float reference, int slot,
                                                    const FetchedBias<1, kProducts / 2>& bias) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
    float(&both)[4] = s[slot / 2][n];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float base =
          fmaf(bias.template value<kType>(0, n / 2, n % 2 * 2 + e), kLog2E, -reference);
      both[slot % 2 * 2 + e] = ptx::exp2_approx(fmaf(both[slot % 2 * 2 + e], scale, base));
    }
    w.sum[slot / 2][slot % 2] += both[slot % 2 * 2] + both[slot % 2 * 2 + 1];
  }
}

// Processes a bias of one type. `lane_row`: counted in the warp.
template <Config kConfig, class Element, ElementType kType>
__device__ __forceinline__ void biased_line(WarpState<kConfig>& w, QueryFragments<kConfig>& q,
                                            const Params& p, const LineContext& context,
                                            int lane_row, int first_key, int column,
                                            uint32_t k_tile, uint32_t v_tile,
                                            const float* references) {
  using Type = std::conditional_t<kType == ElementType::f32, float, uint16_t>;
  constexpr int kProducts = kConfig.block_kv / 8, kGroups = kConfig.row_groups;
  constexpr int kSlots = 2 * kGroups;
  // Loads as much before the products as registers allow, the rest after them.
  constexpr int kEarly = kConfig.early_bias_slots(sizeof(Type));
  const Type* at =
      reinterpret_cast<const Type*>(context.bias) + lane_row * p.bias.query + first_key + column;
  // Prefetches the same rows of the next tile: each lane of a quad every fourth sector of 32 bytes.
  constexpr int kSector = 32 / sizeof(Type);
#pragma unroll
  for (int i = 0; i < kConfig.block_kv / (4 * kSector); ++i) {
    const int further = min(kConfig.block_kv + i * 4 * kSector + column / 4 * (kSector - 4),
                            p.seqlen_kv - 1 - first_key - column);
    const Type* ahead = at + further;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      ptx::prefetch_l2(ahead);
      ahead = ptx::opaque(ahead + 8 * p.bias.query);
    }
  }
  FetchedBias<1, kProducts / 2> bias[kSlots];
  const auto read = [&](int slot) {
#pragma unroll
    for (int piece = 0; piece < kProducts / 2; ++piece) bias[slot].read(0, piece, at + 16 * piece);
    at = ptx::opaque(at + 8 * p.bias.query);
  };
#pragma unroll
  for (int slot = 0; slot < kEarly; ++slot) read(slot);
  Scores<kGroups, kProducts> s;
  multiply_qk<kConfig, Element>(s, q, k_tile);
  at = ptx::opaque(at);
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot >= kEarly) read(slot);
    exponentiate_biased<kConfig, kType>(s, w, p.softcap.scale_log2,
                                        reference_of(w, references, slot), slot, bias[slot]);
  }
  Probabilities<kGroups, kProducts / 2> pr;
  pack<Element>(pr, s);
  multiply_pv<kConfig, Element>(w, pr, v_tile);
}

// Processes a hot tile with features; `lane`: in the warp. Returns false if it needs slices.
template <Config kConfig, class Element>
__device__ __forceinline__ bool scored_line(WarpState<kConfig>& w, QueryFragments<kConfig>& q,
                                            const Params& p, const LineContext& context, int lane,
                                            int first_key, uint32_t k_tile, uint32_t v_tile,
                                            const float* references, bool& wrong) {
  constexpr int kProducts = kConfig.block_kv / 8, kGroups = kConfig.row_groups;
  const int column = first_key_of_lane(KeyOrder::quads, lane);
  if (p.score_line == ScoreLine::softcap) {
    Scores<kGroups, kProducts> s;
    Probabilities<kGroups, kProducts / 2> pr;
    multiply_qk<kConfig, Element>(s, q, k_tile);
    exponentiate_capped<kConfig>(s, w, p, references, wrong);
    pack<Element>(pr, s);
    multiply_pv<kConfig, Element>(w, pr, v_tile);
    return true;
  }
  if (p.score_line == ScoreLine::alibi) {
    const int side = alibi_side<kConfig>(context.diagonal, first_key);
    if (side == 0) return false;
    Scores<kGroups, kProducts> s;
    Probabilities<kGroups, kProducts / 2> pr;
    multiply_qk<kConfig, Element>(s, q, k_tile);
    exponentiate_alibi<kConfig>(
        s, w, p.softcap.scale_log2, references, side > 0 ? context.alibi_step : -context.alibi_step,
        static_cast<float>(context.diagonal + lane / 4 - first_key - column));
    pack<Element>(pr, s);
    multiply_pv<kConfig, Element>(w, pr, v_tile);
    return true;
  }
  if (!context.rows_left) return false;
  if (p.bias_type == ElementType::f32) {
    biased_line<kConfig, Element, ElementType::f32>(w, q, p, context, lane / 4, first_key, column,
                                                    k_tile, v_tile, references);
    return true;
  }
  if (p.bias_type == Element::kType) {
    biased_line<kConfig, Element, Element::kType>(w, q, p, context, lane / 4, first_key, column,
                                                  k_tile, v_tile, references);
    return true;
  }
  return false;
}

}  // namespace flashcore::cuda::forward_sm80::throughput

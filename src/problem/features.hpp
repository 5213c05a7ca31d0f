// What a problem asks for besides attention over Q, K and V of one type: a set of bits, made once of a resolved
// problem. A kernel says which of them it computes (kernel/supports.hpp).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "problem/backward.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// In the order in which kernels refuse them.
enum class Feature : uint8_t {
  // Types.
  lse_of_f64,
  o_apart,    // O is of another type than Q
  narrow_kv,  // K and V of fp8 under a wider Q
  k_apart,    // K of the other type of fp8 than Q
  v_apart,    // V of another type than K
  // Shapes.
  packed,
  seqlens_q,
  seqlens_kv,
  causal_offsets,
  v_head_dim,  // of its own
  grouped_heads,
  window_left,
  window_right,  // but for causal
  // Where K and V lie.
  page_table,
  kv_indices,
  cache_leftpad,
  v_transposed,
  // Scores and weights.
  tree_mask,
  bias,
  mask,
  alibi_slopes,
  sinks,
  softcap,
  scale_not_positive,
  dropout,
  dropout_state,
  block_scales,  // of K or V, that differ between blocks of keys
  // Outputs.
  o_scale,
  amax_o,
  amax_s,
  max_logit,
  // Features of a backward pass:
  d_lse_of_f64,
  gradients_of_f64,
  gradients_apart,  // dQ, dK or dV of another type than Q
  // Rows that do not begin at multiples of 16 bytes from the first.
  unaligned_rows,
  unaligned_gradients,  // dO, dQ, dK or dV
  // Strides of 0 or less, which tensor maps do not have.
  unmapped_inputs,  // Q, K or V
  unmapped_o,
  unmapped_gradients,  // dO, dK or dV
  count
};

class Features {
 public:
  constexpr Features() = default;
  constexpr Features(Feature one) : bits_(uint64_t{1} << static_cast<int>(one)) {}  // NOLINT: a set
  constexpr Features(std::initializer_list<Feature> all) {
    for (const Feature one : all) *this = *this | one;
  }
  static constexpr Features all() {
    return Features((uint64_t{1} << static_cast<int>(Feature::count)) - 1);
  }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(Feature one) const { return !(*this & one).empty(); }
  // The set must not be empty.
  constexpr Feature first() const { return static_cast<Feature>(std::countr_zero(bits_)); }

  constexpr Features operator|(Features other) const { return Features(bits_ | other.bits_); }
  constexpr Features operator&(Features other) const { return Features(bits_ & other.bits_); }
  constexpr Features operator-(Features other) const { return Features(bits_ & ~other.bits_); }
  constexpr bool operator==(const Features&) const = default;

 private:
  constexpr explicit Features(uint64_t bits) : bits_(bits) {}
  uint64_t bits_ = 0;
};

// Sets that kernels have in common.
namespace feature_sets {
using enum Feature;
inline constexpr Features kLengths = {packed, seqlens_q, seqlens_kv, causal_offsets};
// Lengths, diagonals, windows, grouped heads: what most kernels compute.
inline constexpr Features kShapes =
    kLengths | Features{v_head_dim, grouped_heads, window_left, window_right};
inline constexpr Features kPairs = {bias, mask, alibi_slopes};
inline constexpr Features kScores = kPairs | Features{sinks, softcap, scale_not_positive};
inline constexpr Features kPages = {page_table, kv_indices};
inline constexpr Features kCaches = kPages | Features{cache_leftpad, narrow_kv};
inline constexpr Features kLargest = {amax_o, amax_s, max_logit};
inline constexpr Features kMagnitudes = {amax_o, amax_s};
inline constexpr Features kUnmapped = {unmapped_inputs, unmapped_o, unmapped_gradients};
inline constexpr Features kUnaligned = {unaligned_rows, unaligned_gradients};
inline constexpr Features kLayouts = kUnmapped | kUnaligned;
}  // namespace feature_sets

// An input or output that is there or not.
struct Given {
  Feature feature;
  std::string_view name;
  std::string_view wanted;  // by a kernel that does not have it
  bool (*is_in)(const ForwardProblem&);
};
namespace given {
using enum Feature;
inline constexpr std::string_view kNone = "none", kInOnePiece = "keys and values in one piece",
                                  kNoOthers = "O and LSE only";

template <auto kMember>
bool is_present(const ForwardProblem& p) {
  return (p.*kMember).present;
}

inline constexpr Given kAll[] = {
    {packed, "cu_seqlens_q", "a batch that is not packed",
     [](const ForwardProblem& p) { return p.packed; }},
    {seqlens_q, "seqlens_q", kNone, is_present<&ForwardProblem::seqlens_q>},
    {seqlens_kv, "seqlens_kv", kNone, is_present<&ForwardProblem::seqlens_kv>},
    {causal_offsets, "causal_offsets", kNone, is_present<&ForwardProblem::causal_offsets>},
    {page_table, "page_table", kInOnePiece,
     [](const ForwardProblem& p) { return p.paging.present && !p.paging.flat; }},
    {kv_indices, "kv_indices", kInOnePiece,
     [](const ForwardProblem& p) { return p.paging.present && p.paging.flat; }},
    {cache_leftpad, "cache_leftpad", "keys from the first row",
     is_present<&ForwardProblem::cache_leftpad>},
    {v_transposed, "v_transposed", "V in rows of keys",
     [](const ForwardProblem& p) { return p.v_transposed; }},
    {tree_mask, "tree_mask", "a mask of pairs", is_present<&ForwardProblem::tree_mask>},
    {bias, "bias", kNone, is_present<&ForwardProblem::bias>},
    {mask, "mask", kNone, is_present<&ForwardProblem::mask>},
    {alibi_slopes, "alibi_slopes", kNone, is_present<&ForwardProblem::alibi_slopes>},
    {sinks, "sinks", kNone, is_present<&ForwardProblem::sinks>},
    {dropout_state, "dropout_state", "seed and offset as numbers",
     is_present<&ForwardProblem::dropout_state>},
    {o_scale, "o_scale", "an O without a scale", is_present<&ForwardProblem::o_scale>},
    {amax_o, "amax_o", kNoOthers, is_present<&ForwardProblem::amax_o>},
    {amax_s, "amax_s", kNoOthers, is_present<&ForwardProblem::amax_s>},
    {max_logit, "max_logit", kNoOthers, is_present<&ForwardProblem::max_logit>},
};
}  // namespace given

Features features_of(const ForwardProblem& p);
Features features_of(const BackwardProblem& p);

// A tensor's rows: what its batch strides lead to, heads, and rows of each.
struct TensorRows {
  std::string_view name;
  const RowStrides& stride;  // of the problem
  DType dtype;
  int64_t lead, heads, rows;
};
std::array<TensorRows, 4> forward_rows(const ForwardProblem& p);    // q, k, v, o
std::array<TensorRows, 4> gradient_rows(const BackwardProblem& p);  // d_o, dk, dv, dq

// Empty where they begin at multiples of 16 bytes from the first, or have strides of more than 0; otherwise a
// sentence.
std::string unaligned(const TensorRows& rows);
std::string unmapped(const TensorRows& rows);

}  // namespace flashcore

// Every refusal of resolve(): the message names the argument, its value and what is wanted. Legal
// problems stay legal, and get their defaults.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "problem/problem.hpp"
#include "tests/problem/problems.hpp"

namespace flashcore {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kFar = int64_t{1} << 32;
constexpr int64_t kLongest = (int64_t{1} << 31) - 1;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

enum class Base { dense, packed, full };

Problem base_problem(Base base) {
  switch (base) {
    case Base::dense:
      return dense_problem();
    case Base::packed:
      return packed_problem();
    case Base::full:
      return full_problem();
  }
  return {};
}

struct Refusal {
  const char* name;
  Base base;
  std::function<void(Problem&)> bend;
  std::string argument;  // the message starts with it
  std::string value;     // and contains this
  const char* wanted;    // and this, after "wanted"
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

TensorDesc contiguous(DType dtype, std::initializer_list<int64_t> shape) {
  return TensorDesc::contiguous(dtype, shape);
}

// Replaces one tensor, or one option.
template <class Member>
std::function<void(Problem&)> set(Member Problem::*member, std::type_identity_t<Member> value) {
  return [=](Problem& p) { p.*member = value; };
}
std::function<void(Problem&)> stride(TensorDesc Problem::*member, size_t d, int64_t value) {
  return [=](Problem& p) { (p.*member).stride[d] = value; };
}

const DType kNoType = static_cast<DType>(9);
const DType kNegativeType = static_cast<DType>(-1);

constexpr const char* kItsShape = "";  // the value of the refusal
constexpr const char* kExtents = "0 to 2147483647";

// One tensor replaced by a contiguous one; the message starts with its name.
struct OtherTensor {
  const char* name;
  Base base;
  std::string_view tensor;
  DType dtype;
  std::vector<int64_t> shape;
  const char* value;
  const char* wanted;
};

const std::vector<OtherTensor>& other_tensors() {
  using enum Base;
  using enum DType;
  static const std::vector<OtherTensor> table = {
      // Values that no enumerator has.
      {"q_type_9", dense, "q", kNoType, {2, 4, 3, 8}, "9", "0 to 8"},
      {"k_type_minus_1", dense, "k", kNegativeType, {2, 2, 5, 8}, "-1", "0 to 8"},
      {"v_type_9", dense, "v", kNoType, {2, 2, 5, 6}, "9", "0 to 8"},
      {"o_type_9", dense, "o", kNoType, {2, 4, 3, 6}, "9", "0 to 8"},
      {"lse_type_9", dense, "lse", kNoType, {2, 4, 3}, "9", "0 to 8"},
      {"bias_type_9", full, "bias", kNoType, {1, 1, 1, 1}, "9", "0 to 8"},
      {"mask_type_9", full, "mask", kNoType, {1, 1, 1, 1}, "9", "0 to 8"},
      {"alibi_type_9", full, "alibi_slopes", kNoType, {4}, "9", "0 to 8"},
      {"sinks_type_9", full, "sinks", kNoType, {4}, "9", "0 to 8"},
      {"q_scale_type_9", full, "q_scale", kNoType, {1, 1}, "9", "0 to 8"},
      {"k_scale_type_9", full, "k_scale", kNoType, {1, 1, 1}, "9", "0 to 8"},
      {"v_scale_type_9", full, "v_scale", kNoType, {1, 1, 1}, "9", "0 to 8"},
      {"o_scale_type_9", full, "o_scale", kNoType, {1, 1}, "9", "0 to 8"},
      {"amax_o_type_9", dense, "amax_o", kNoType, {1, 1}, "9", "0 to 8"},
      {"cu_q_type_9", packed, "cu_seqlens_q", kNoType, {3}, "9", "0 to 8"},
      {"cu_kv_type_9", packed, "cu_seqlens_kv", kNoType, {3}, "9", "0 to 8"},
      {"seqlens_q_type_9", full, "seqlens_q", kNoType, {2}, "9", "0 to 8"},
      {"seqlens_kv_type_9", full, "seqlens_kv", kNoType, {2}, "9", "0 to 8"},
      {"causal_offsets_type_9", full, "causal_offsets", kNoType, {2}, "9", "0 to 8"},

      // Types.
      {"q_f64", dense, "q", f64, {2, 4, 3, 8}, "f64", "f32, f16, bf16, f8e4m3 or f8e5m2"},
      {"q_boolean", dense, "q", boolean, {2, 4, 3, 8}, "boolean", "f32"},
      {"k_i32", dense, "k", i32, {2, 2, 5, 8}, "i32", "f32"},
      {"k_not_as_q", dense, "k", f16, {2, 2, 5, 8}, "f16", "q's f32"},
      {"v_not_as_q", dense, "v", bf16, {2, 2, 5, 6}, "bf16", "k's f32"},
      {"k_not_fp8", full, "k", bf16, {2, 2, 5, 8}, "bf16", "q's f8e4m3, or other fp8"},
      {"v_not_fp8", full, "v", f16, {2, 2, 5, 6}, "f16", "k's f8e4m3, or other fp8"},
      {"v_alone_fp8", dense, "v", f8e5m2, {2, 2, 5, 6}, "f8e5m2", "k's f32"},
      {"o_i32", dense, "o", i32, {2, 4, 3, 6}, "i32", "a floating-point type"},
      {"lse_f16", dense, "lse", f16, {2, 4, 3}, "f16", "f32 or f64"},
      {"bias_f64", dense, "bias", f64, {1, 1, 3, 5}, "f64", "f32, f16 or bf16"},
      {"bias_boolean", dense, "bias", boolean, {1, 1, 3, 5}, "boolean", "f32, f16 or bf16"},
      {"bias_fp8", dense, "bias", f8e5m2, {1, 1, 3, 5}, "f8e5m2", "f32, f16 or bf16"},
      {"mask_f32", dense, "mask", f32, {1, 1, 3, 5}, "f32", "boolean"},
      {"alibi_f16", dense, "alibi_slopes", f16, {4}, "f16", "f32"},
      {"sinks_bf16", dense, "sinks", bf16, {4}, "bf16", "f32"},
      {"q_scale_f16", full, "q_scale", f16, {2, 4}, "f16", "f32"},
      {"k_scale_f16", full, "k_scale", f16, {2, 2, 3}, "f16", "f32"},
      {"v_scale_i32", full, "v_scale", i32, {2, 2, 3}, "i32", "f32"},
      {"o_scale_f16", full, "o_scale", f16, {2, 4}, "f16", "f32"},
      {"o_scale_of_f32", dense, "o_scale", f32, {2, 4}, "an o of f32", "only with fp8"},
      {"amax_o_f64", dense, "amax_o", f64, {2, 4}, "f64", "f32"},
      {"amax_s_bf16", dense, "amax_s", bf16, {2, 4}, "bf16", "f32"},
      {"cu_q_f32", packed, "cu_seqlens_q", f32, {3}, "f32", "i32"},
      {"cu_kv_f32", packed, "cu_seqlens_kv", f32, {3}, "f32", "i32"},
      {"seqlens_q_f32", dense, "seqlens_q", f32, {2}, "f32", "i32"},
      {"seqlens_kv_f32", dense, "seqlens_kv", f32, {2}, "f32", "i32"},

      // Ranks.
      {"q_rank_3", dense, "q", f32, {4, 3, 8}, "3", "4 for [B, Hq, Sq, Dqk]"},
      {"q_rank_5", dense, "q", f32, {1, 2, 4, 3, 8}, "5", "4"},
      {"k_rank_3", dense, "k", f32, {2, 5, 8}, "3", "4 for [B, Hkv, Skv, Dqk]"},
      {"v_rank_3", dense, "v", f32, {2, 5, 6}, "3", "4 for [B, Hkv, Skv, Dv]"},
      {"o_rank_3", dense, "o", f32, {4, 3, 6}, "3", "4 for [B, Hq, Sq, Dv]"},
      {"lse_rank_4", dense, "lse", f32, {2, 4, 3, 1}, "4", "3 for [B, Hq, Sq]"},
      {"packed_q_rank_4", packed, "q", f32, {1, 7, 4, 8}, "4", "3 for [total_q, Hq, Dqk]"},
      {"packed_k_rank_4", packed, "k", f32, {1, 9, 2, 8}, "4", "3 for [total_kv, Hkv, Dqk]"},
      {"packed_v_rank_2", packed, "v", f32, {9, 12}, "2", "3 for [total_kv, Hkv, Dv]"},
      {"packed_o_rank_4", packed, "o", f32, {1, 7, 4, 6}, "4", "3 for [total_q, Hq, Dv]"},
      {"packed_lse_rank_3", packed, "lse", f32, {1, 7, 4}, "3", "2 for [total_q, Hq]"},
      {"bias_rank_3", dense, "bias", f32, {4, 3, 5}, "3", "4 for [B, Hq, Sq, Skv]"},
      {"mask_rank_2", dense, "mask", boolean, {3, 5}, "2", "4 for [B, Hq, Sq, Skv]"},
      {"alibi_rank_3", dense, "alibi_slopes", f32, {1, 2, 4}, "3", "[B, Hq] (or rank 1 for [Hq])"},
      {"alibi_rank_0", dense, "alibi_slopes", f32, {}, "0", "[B, Hq] (or rank 1 for [Hq])"},
      {"sinks_rank_2", dense, "sinks", f32, {2, 4}, "2", "1 for [Hq]"},
      {"q_scale_rank_1", full, "q_scale", f32, {4}, "1", "2 for [B, Hq]"},
      {"k_scale_rank_2", full, "k_scale", f32, {2, 2}, "2", "3 for [B, Hkv, blocks]"},
      {"v_scale_rank_4", full, "v_scale", f32, {2, 2, 3, 1}, "4", "3 for [B, Hkv, blocks]"},
      {"o_scale_rank_3", full, "o_scale", f32, {2, 4, 1}, "3", "2 for [B, Hq]"},
      {"amax_s_rank_1", dense, "amax_s", f32, {4}, "1", "2 for [B, Hq]"},
      {"cu_q_rank_2", packed, "cu_seqlens_q", i32, {1, 3}, "2", "1 for [B + 1]"},
      {"seqlens_q_rank_2", dense, "seqlens_q", i32, {2, 1}, "2", "1 for [B]"},
      {"causal_offsets_rank_2", full, "causal_offsets", i32, {2, 1}, "2", "1 for [B]"},

      // Extents.
      {"q_negative_extent", dense, "q", f32, {2, 4, -3, 8}, "-3", kExtents},
      {"q_lowest_extent", dense, "q", f32, {2, kMin, 3, 8}, "-9223372036854775808", kExtents},
      {"q_extent_2_31", dense, "q", f32, {2, 4, kLongest + 1, 8}, "2147483648", kExtents},
      {"k_negative_batch", dense, "k", f32, {-2, 2, 5, 8}, "-2", kExtents},
      {"bias_negative", dense, "bias", f32, {1, 1, -1, 5}, "-1", kExtents},
      {"q_head_dim_0", dense, "q", f32, {2, 4, 3, 0}, "0", "at least 1"},
      {"v_head_dim_0", dense, "v", f32, {2, 2, 5, 0}, "0", "at least 1"},
      {"k_batch", dense, "k", f32, {3, 2, 5, 8}, kItsShape, "[B, Hkv, Skv, Dqk] = [2, 2, 5, 8]"},
      {"k_batch_1", dense, "k", f32, {1, 2, 5, 8}, kItsShape, "[2, 2, 5, 8]"},
      {"k_heads_3", dense, "k", f32, {2, 3, 5, 8}, "3 heads", "a divisor of q's 4"},
      {"k_heads_8", dense, "k", f32, {2, 8, 5, 8}, "8 heads", "a divisor of q's 4"},
      {"k_heads_0", dense, "k", f32, {2, 0, 5, 8}, "0 heads", "a divisor of q's 4"},
      {"k_head_dim", dense, "k", f32, {2, 2, 5, 7}, kItsShape, "[2, 2, 5, 8]"},
      {"v_heads", dense, "v", f32, {2, 4, 5, 6}, kItsShape, "[B, Hkv, Skv, Dv] = [2, 2, 5, 6]"},
      {"v_keys", dense, "v", f32, {2, 2, 4, 6}, kItsShape, "[2, 2, 5, 6]"},
      {"o_queries", dense, "o", f32, {2, 4, 5, 6}, kItsShape, "[B, Hq, Sq, Dv] = [2, 4, 3, 6]"},
      {"o_head_dim", dense, "o", f32, {2, 4, 3, 8}, kItsShape, "[2, 4, 3, 6]"},
      {"o_broadcast", dense, "o", f32, {1, 4, 3, 6}, kItsShape, "[2, 4, 3, 6]"},
      {"lse_heads", dense, "lse", f32, {2, 2, 3}, kItsShape, "[B, Hq, Sq] = [2, 4, 3]"},
      {"packed_k_total", packed, "v", f32, {8, 2, 6}, kItsShape, "[total_kv, Hkv, Dv] = [9, 2, 6]"},
      {"packed_o_total", packed, "o", f32, {6, 4, 6}, kItsShape, "[total_q, Hq, Dv] = [7, 4, 6]"},
      {"packed_lse_transposed", packed, "lse", f32, {4, 7}, kItsShape, "[total_q, Hq] = [7, 4]"},
      {"packed_k_heads", packed, "k", f32, {9, 3, 8}, "3 heads", "a divisor of q's 4"},
      {"bias_batch",
       dense,
       "bias",
       f32,
       {3, 1, 1, 5},
       kItsShape,
       "[2, 4, 3, 5], where 1 may stand for any"},
      {"bias_kv_heads", dense, "bias", f32, {1, 2, 3, 5}, kItsShape, "[2, 4, 3, 5]"},
      {"bias_zero_keys", dense, "bias", f32, {1, 1, 3, 0}, kItsShape, "[2, 4, 3, 5]"},
      {"mask_keys", dense, "mask", boolean, {1, 1, 3, 4}, kItsShape, "[2, 4, 3, 5]"},
      {"alibi_kv_heads", dense, "alibi_slopes", f32, {2}, kItsShape, "[Hq] = [4]"},
      {"alibi_one_head", dense, "alibi_slopes", f32, {1}, kItsShape, "[Hq] = [4]"},
      {"alibi_batch_3", dense, "alibi_slopes", f32, {3, 4}, kItsShape, "[B, Hq] = [2, 4]"},
      {"sinks_kv_heads", dense, "sinks", f32, {2}, kItsShape, "[Hq] = [4]"},
      {"q_scale_heads", full, "q_scale", f32, {2, 2}, kItsShape, "[B, Hq] = [2, 4]"},
      {"k_scale_query_heads",
       full,
       "k_scale",
       f32,
       {2, 4, 3},
       kItsShape,
       "[B, Hkv, blocks] = [2, 2, 3]"},
      {"k_scale_blocks", full, "k_scale", f32, {2, 2, 2}, kItsShape, "[2, 2, 3]"},
      {"v_scale_per_key", full, "v_scale", f32, {2, 2, 5}, kItsShape, "[2, 2, 3]"},
      {"o_scale_kv_heads", full, "o_scale", f32, {2, 2}, kItsShape, "[B, Hq] = [2, 4]"},
      {"amax_o_rows", dense, "amax_o", f32, {2, 3}, kItsShape, "[B, Hq] = [2, 4]"},
      {"amax_s_of_packed_rows", packed, "amax_s", f32, {7, 4}, kItsShape, "[B, Hq] = [2, 4]"},
      {"cu_q_empty", packed, "cu_seqlens_q", i32, {0}, kItsShape, "[B + 1]"},
      {"cu_lengths_differ", packed, "cu_seqlens_kv", i32, {4}, kItsShape, "[B + 1] = [3]"},
      {"seqlens_q_batch", dense, "seqlens_q", i32, {1}, kItsShape, "[B] = [2]"},
      {"seqlens_kv_batch", packed, "seqlens_kv", i32, {3}, kItsShape, "[B] = [2]"},
      {"causal_offsets_batch", full, "causal_offsets", i32, {4}, kItsShape, "[B] = [2]"},

      // Dependencies between tensors.
      {"q_scale_of_f32", dense, "q_scale", f32, {1, 1}, "f32", "only with fp8"},
      {"k_scale_of_f32", dense, "k_scale", f32, {1, 1, 1}, "f32", "only with fp8"},
      {"v_scale_of_f32", dense, "v_scale", f32, {1, 1, 1}, "f32", "only with fp8"},
  };
  return table;
}

std::vector<Refusal> refusals() {
  using enum Base;
  std::vector<Refusal> table = {
      // Values that no enumerator has.
      {"alignment_3", dense, set(&Problem::alignment, static_cast<Alignment>(3)),
       "alignment:", "3", "given (2)"},
      {"alignment_minus_1", dense, set(&Problem::alignment, static_cast<Alignment>(-1)),
       "alignment:", "-1", "top_left (0)"},

      // Ranks.
      {"q_rank_0", dense, set(&Problem::q, TensorDesc{}), "q:", "0", "4"},
      {"q_rank_lowest", dense,
       [](Problem& p) { p.q.rank = std::numeric_limits<int32_t>::min(); }, "q:", "-2147483648",
       "4"},
      {"q_rank_highest", dense,
       [](Problem& p) { p.q.rank = std::numeric_limits<int32_t>::max(); }, "q:", "2147483647", "4"},
      {"strides_missing", dense,
       set(&Problem::q, TensorDesc::strided(DType::f32, {2, 4, 3, 8}, {96, 24, 8})), "q:", "-1",
       "4"},

      // Extents.
      {"amax_o_overlaps", dense,
       set(&Problem::amax_o, TensorDesc::strided(DType::f32, {2, 4}, {0, 1})), "amax_o:", "[2, 4]",
       "elements do not overlap"},

      // Strides.
      {"q_row_stride_lowest", dense, stride(&Problem::q, 2, kMin), "q:",
       "-9223372036854775808", "less"},
      {"q_row_stride_highest", dense, stride(&Problem::q, 2, kMax), "q:",
       "9223372036854775807", "less"},
      {"k_head_stride_2_61", dense, stride(&Problem::k, 1, int64_t{1} << 61), "k:",
       "2305843009213693952", "less"},
      {"bias_stride_lowest", dense,
       set(&Problem::bias, TensorDesc::strided(DType::f32, {1, 1, 3, 5}, {0, 0, kMin, 1})),
       "bias:", "-9223372036854775808", "less"},
      {"sinks_span_past_2_56_bytes", dense,
       set(&Problem::sinks, TensorDesc::strided(DType::f32, {4}, {(int64_t{1} << 52) + 1})),
       "sinks: strides [4503599627370497]", "2^56 bytes", "less"},
      {"sinks_stride_highest", dense,
       set(&Problem::sinks, TensorDesc::strided(DType::f32, {4}, {kMax})),
       "sinks:", "9223372036854775807", "less"},
      {"seqlens_stride_lowest", dense,
       set(&Problem::seqlens_kv, TensorDesc::strided(DType::i32, {2}, {kMin})),
       "seqlens_kv:", "-9223372036854775808", "less"},
      {"q_not_contiguous", dense, stride(&Problem::q, 3, 2), "q:", "2", "1"},
      {"k_reversed_columns", dense, stride(&Problem::k, 3, -1), "k:", "-1", "1"},
      {"v_broadcast_columns", dense, stride(&Problem::v, 3, 0), "v:", "0", "1"},
      {"o_not_contiguous", dense, stride(&Problem::o, 3, 2), "o:", "2", "1"},
      {"o_rows_overlap", dense, stride(&Problem::o, 2, 5), "o:", "[72, 18, 5, 1]",
       "elements do not overlap"},
      {"o_rows_overlap_reversed", dense, stride(&Problem::o, 2, -5), "o:", "-5",
       "elements do not overlap"},
      {"o_broadcast_heads", dense, stride(&Problem::o, 1, 0), "o:", "[72, 0, 6, 1]",
       "elements do not overlap"},
      {"o_batches_overlap", dense, stride(&Problem::o, 0, 71), "o:", "[71, 18, 6, 1]",
       "elements do not overlap"},
      {"o_head_as_row", dense, stride(&Problem::o, 1, 6), "o:", "[72, 6, 6, 1]",
       "elements do not overlap"},
      {"lse_overlaps", dense,
       set(&Problem::lse, TensorDesc::strided(DType::f32, {2, 4, 3}, {12, 3, 0})),
       "lse:", "[12, 3, 0]", "elements do not overlap"},
      {"packed_o_rows_overlap", packed, stride(&Problem::o, 0, 23), "o:", "[23, 6, 1]",
       "elements do not overlap"},

      // Dependencies between tensors.
      {"cu_q_alone", packed, [](Problem& p) { p.cu_seqlens_kv.reset(); }, "cu_seqlens_kv:",
       "missing", "both"},
      {"cu_kv_alone", packed, [](Problem& p) { p.cu_seqlens_q.reset(); }, "cu_seqlens_q:",
       "missing", "both"},
      {"max_seqlen_not_packed", dense, set(&Problem::max_seqlen_q, 3), "max_seqlen_q:", "3",
       "0 unless packed"},
      {"max_seqlen_kv_not_packed", dense, set(&Problem::max_seqlen_kv, -1),
       "max_seqlen_kv:", "-1", "0 unless packed"},
      {"max_seqlen_q_past_total", packed, set(&Problem::max_seqlen_q, 8),
       "max_seqlen_q:", "8", "0 to 7"},
      {"max_seqlen_kv_negative", packed, set(&Problem::max_seqlen_kv, -1),
       "max_seqlen_kv:", "-1", "0 to 9"},
      {"offsets_not_given", full, set(&Problem::alignment, Alignment::top_left),
       "causal_offsets:", "present", "given"},
      {"offset_not_given", dense, set(&Problem::causal_offset, 1), "causal_offset:", "1",
       "0 unless the alignment is given"},
      {"offset_and_offsets", full, set(&Problem::causal_offset, 1), "causal_offset:", "1",
       "0 with causal_offsets"},

      // Options.
      {"scale_nan", dense, set(&Problem::softmax_scale, kNaN), "softmax_scale:", "nan",
       "a finite number"},
      {"scale_infinite", dense, set(&Problem::softmax_scale, -kInf), "softmax_scale:", "-inf",
       "a finite number"},
      {"softcap_negative", dense, set(&Problem::softcap, -1.0f), "softcap:", "-1",
       "0 (off) or a positive"},
      {"softcap_nan", dense, set(&Problem::softcap, kNaN), "softcap:", "nan", "0 (off)"},
      {"softcap_infinite", dense, set(&Problem::softcap, kInf), "softcap:", "inf", "finite"},
      {"dropout_negative", dense, set(&Problem::dropout_p, -0.1f), "dropout_p:", "-0.1",
       "0 to 1"},
      {"dropout_past_1", dense, set(&Problem::dropout_p, 1.5f), "dropout_p:", "1.5",
       "0 to 1"},
      {"dropout_nan", dense, set(&Problem::dropout_p, kNaN), "dropout_p:", "nan", "0 to 1"},
      {"dropout_infinite", dense, set(&Problem::dropout_p, kInf), "dropout_p:", "inf",
       "0 to 1"},
      {"window_left_minus_2", dense, set(&Problem::window_left, -2), "window_left:", "-2",
       "-1 (no limit) to 4294967296"},
      {"window_right_lowest", dense, set(&Problem::window_right, kMin),
       "window_right:", "-9223372036854775808", "-1 (no limit)"},
      {"window_left_too_far", dense, set(&Problem::window_left, kFar + 1),
       "window_left:", "4294967297", "to 4294967296"},
      {"window_right_highest", dense, set(&Problem::window_right, kMax),
       "window_right:", "9223372036854775807", "to 4294967296"},
      {"offset_too_far", dense,
       [](Problem& p) {
         p.alignment = Alignment::given;
         p.causal_offset = kFar + 1;
       },
       "causal_offset:", "4294967297", "-4294967296 to 4294967296"},
      {"offset_lowest", dense,
       [](Problem& p) {
         p.alignment = Alignment::given;
         p.causal_offset = kMin;
       },
       "causal_offset:", "-9223372036854775808", "-4294967296 to 4294967296"},
      {"transposed_not_fp8", dense, set(&Problem::v_transposed, true), "v_transposed:",
       "f32", "only with fp8"},
      {"transposed_packed", packed,
       [](Problem& p) {
         p.q.dtype = p.k.dtype = p.v.dtype = DType::f8e4m3;
         p.v_transposed = true;
       },
       "v_transposed:", "cu_seqlens_kv", "false if packed"},
      {"transposed_in_pages", full,
       [](Problem& p) {
         p.page_table = contiguous(DType::i32, {2, 1});
         p.v_transposed = true;
       },
       "v_transposed:", "page_table", "false with keys in pages"},
      {"transposed_rows", full, set(&Problem::v_transposed, true), "v:", "[2, 2, 5, 6]",
       "a multiple of 128"},
      {"transposed_columns", full,
       [](Problem& p) {
         p.v = contiguous(DType::f8e4m3, {2, 2, 6, 130});
         p.v_transposed = true;
       },
       "v:", "130", "a multiple of 128, at least k's 5 rows"},
      {"transposed_few_columns", full,
       [](Problem& p) {
         p.v = contiguous(DType::f8e4m3, {2, 2, 6, 0});
         p.v_transposed = true;
       },
       "v:", "0 columns", "a multiple of 128, at least k's 5 rows"},
      {"scale_block_negative", full, set(&Problem::kv_scale_block, -1), "kv_scale_block:",
       "-1", "0 to 2147483647"},
      {"scale_block_highest", full, set(&Problem::kv_scale_block, kMax), "kv_scale_block:",
       "9223372036854775807", "0 to 2147483647"},
  };
  for (const OtherTensor& one : other_tensors()) {
    const auto bend = [&](Problem& p) {
      bench::set_tensor(p, one.tensor, bench::contiguous(one.dtype, one.shape));
    };
    const std::string value = std::string_view(one.value).empty()
                                  ? fmt::format("[{}]", fmt::join(one.shape, ", "))
                                  : one.value;
    table.push_back({one.name, one.base, bend, std::string(one.tensor) + ":", value, one.wanted});
  }
  return table;
}

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithOneSentence) {
  Problem problem = base_problem(GetParam().base);
  ASSERT_TRUE(resolve(problem).ok()) << resolve(problem).status().message();
  GetParam().bend(problem);
  const Status status = resolve(problem).status();
  ASSERT_EQ(status.code(), StatusCode::invalid_argument);
  const std::string& message = status.message();
  EXPECT_THAT(message, StartsWith(GetParam().argument));
  EXPECT_THAT(message, HasSubstr(GetParam().value));
  const size_t wanted = message.find("wanted");
  ASSERT_NE(wanted, std::string::npos) << message;
  EXPECT_THAT(message.substr(wanted), HasSubstr(GetParam().wanted));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  // The public functions return the same.
  EXPECT_EQ(make_plan(problem).status().message(), message);
  EXPECT_EQ(explain(problem).status().message(), message);
}

INSTANTIATE_TEST_SUITE_P(Problems, Refused, testing::ValuesIn(refusals()),
                         [](const auto& instance) { return std::string(instance.param.name); });

ForwardProblem resolved(const Problem& problem) {
  const Result<ForwardProblem> result = resolve(problem);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : ForwardProblem{};
}

// e4m3 and e5m2 for each of Q, K and V, and for K and V under a wider Q.
TEST(Resolve, TakesEveryMixOfFp8) {
  for (const DType q : {DType::f8e4m3, DType::f8e5m2, DType::f32, DType::bf16}) {
    for (const DType k : {DType::f8e4m3, DType::f8e5m2}) {
      for (const DType v : {DType::f8e4m3, DType::f8e5m2}) {
        Problem problem = dense_problem(q);
        problem.k.dtype = k;
        problem.v.dtype = v;
        problem.k_scale = problem.v_scale = contiguous(DType::f32, {1, 1, 1});
        const ForwardProblem p = resolved(problem);
        EXPECT_EQ(p.dtype, q);
        EXPECT_EQ(p.k_dtype, k);
        EXPECT_EQ(p.v_dtype, v);
        const bool is_narrow = q == DType::f8e4m3 || q == DType::f8e5m2;
        EXPECT_EQ(p.mixes_fp8(), k != v || (is_narrow && q != k));
      }
    }
  }
  EXPECT_FALSE(resolved(dense_problem(DType::f16)).mixes_fp8());
}

TEST(Resolve, FillsInSizesAndDefaults) {
  const ForwardProblem p = resolved(dense_problem(DType::bf16));
  EXPECT_FALSE(p.packed);
  EXPECT_EQ(p.dtype, DType::bf16);
  EXPECT_EQ(p.o_dtype, DType::bf16);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.heads_q, 4);
  EXPECT_EQ(p.heads_kv, 2);
  EXPECT_EQ(p.seqlen_q, 3);
  EXPECT_EQ(p.seqlen_kv, 5);
  EXPECT_EQ(p.head_dim_qk, 8);
  EXPECT_EQ(p.head_dim_v, 6);
  EXPECT_EQ(p.softmax_scale, static_cast<float>(1 / std::sqrt(8.0)));
  EXPECT_TRUE(p.band.unlimited());
  EXPECT_EQ(p.kv_scale_block, 5);
  EXPECT_EQ(p.kv_head(0), 0);
  EXPECT_EQ(p.kv_head(1), 0);
  EXPECT_EQ(p.kv_head(2), 1);
  EXPECT_EQ(p.kv_head(3), 1);
  EXPECT_EQ(p.q.at(1, 2, 1), 1 * 96 + 2 * 24 + 8);
  EXPECT_EQ(p.lse.at(1, 2, 1), 1 * 12 + 2 * 3 + 1);
}

TEST(Resolve, PackedSizesAndStrides) {
  Problem problem = packed_problem();
  const ForwardProblem p = resolved(problem);
  EXPECT_TRUE(p.packed);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.total_q, 7);
  EXPECT_EQ(p.total_kv, 9);
  EXPECT_EQ(p.seqlen_q, 7);  // unknown: the total bounds it
  EXPECT_EQ(p.seqlen_kv, 9);
  EXPECT_EQ(p.k.at(1, 1, 4), 4 * 16 + 8);
  EXPECT_EQ(p.lse.at(1, 2, 3), 3 * 4 + 2);
  problem.max_seqlen_q = 4;
  problem.max_seqlen_kv = 6;
  EXPECT_EQ(resolved(problem).seqlen_q, 4);
  EXPECT_EQ(resolved(problem).seqlen_kv, 6);
}

TEST(Resolve, BroadcastsGetStrideZero) {
  for (int bits = 0; bits < 16; ++bits) {
    Problem problem = dense_problem();
    const auto extent = [&](int d, int64_t whole) { return (bits >> d & 1) != 0 ? 1 : whole; };
    problem.bias = contiguous(DType::f16, {extent(0, 2), extent(1, 4), extent(2, 3), extent(3, 5)});
    for (size_t d = 0; d < 4; ++d) {  // an unused stride must not matter
      if (problem.bias->shape[d] == 1) problem.bias->stride[d] = 77;
    }
    const PairInput bias = resolved(problem).bias;
    EXPECT_TRUE(bias.present);
    EXPECT_EQ(bias.dtype, DType::f16);
    EXPECT_EQ(bias.batch == 0, (bits & 1) != 0);
    EXPECT_EQ(bias.head == 0, (bits & 2) != 0);
    EXPECT_EQ(bias.query == 0, (bits & 4) != 0);
    EXPECT_EQ(bias.key == 0, (bits & 8) != 0);
  }
}

TEST(Resolve, CausalAndWindowMakeOneBand) {
  struct Row {
    bool causal;
    int64_t left, right, wanted_left, wanted_right;
  };
  for (const Row& row : {Row{false, -1, -1, -1, -1}, Row{true, -1, -1, -1, 0},
                         Row{true, 3, 5, 3, 0}, Row{true, 3, 0, 3, 0}, Row{false, 0, 0, 0, 0},
                         Row{false, kFar, kFar, kFar, kFar}, Row{false, -1, 2, -1, 2}}) {
    Problem problem = dense_problem();
    problem.causal = row.causal;
    problem.window_left = row.left;
    problem.window_right = row.right;
    const Band band = resolved(problem).band;
    EXPECT_EQ(band.left, row.wanted_left);
    EXPECT_EQ(band.right, row.wanted_right);
  }
}

TEST(Resolve, KeepsTheStridesOfVectors) {
  Problem problem = base_problem(Base::dense);
  problem.sinks = TensorDesc::strided(DType::f32, {4}, {5});
  problem.alibi_slopes = TensorDesc::strided(DType::f32, {4}, {-3});
  EXPECT_EQ(resolved(problem).sinks.at(1, 2), 10);
  EXPECT_EQ(resolved(problem).alibi_slopes.at(1, 2), -6);
  problem.alibi_slopes = TensorDesc::strided(DType::f32, {2, 4}, {50, 7});
  EXPECT_EQ(resolved(problem).alibi_slopes.at(1, 2), 64);
  problem.alibi_slopes = TensorDesc::strided(DType::f32, {1, 4}, {50, 7});
  EXPECT_EQ(resolved(problem).alibi_slopes.at(1, 2), 14);
  problem.seqlens_kv = TensorDesc::strided(DType::i32, {2}, {9});
  EXPECT_EQ(resolved(problem).seqlens_kv.at(1, 0), 9);
}

// The stride of a dimension with one element is never used.
TEST(Resolve, AStrideOfOneElementMayBeAnything) {
  Problem problem;
  problem.q = problem.k = problem.v = problem.o = contiguous(DType::f32, {1, 1, 1, 4});
  problem.q.stride[2] = problem.o.stride[1] = kMax;
  problem.k.stride[0] = problem.v.stride[1] = kMin;
  const ForwardProblem p = resolved(problem);
  for (const int64_t stride : {p.q.row, p.o.head, p.k.batch, p.v.head}) EXPECT_EQ(stride, 0);

  problem.q = problem.k = problem.v = problem.o = contiguous(DType::f32, {1, 1, 2, 1});
  problem.q.stride[3] = problem.k.stride[3] = kMax;
  EXPECT_TRUE(resolve(problem).ok()) << resolve(problem).status().message();

  problem = base_problem(Base::packed);
  problem.k = contiguous(DType::f32, {1, 2, 8});
  problem.v = contiguous(DType::f32, {1, 2, 6});
  problem.v.stride[0] = kMax;
  EXPECT_EQ(resolved(problem).v.row, 0);
}

TEST(Resolve, ExtremesThatAreLegal) {
  const auto legal = [](const std::function<void(Problem&)>& bend, Base base = Base::dense) {
    Problem problem = base_problem(base);
    bend(problem);
    EXPECT_TRUE(resolve(problem).ok()) << resolve(problem).status().message();
  };
  legal(set(&Problem::dropout_p, 1.0f));
  legal(set(&Problem::softmax_scale, 0.0f));
  legal(set(&Problem::softmax_scale, -2.0f));
  legal(set(&Problem::softcap, std::numeric_limits<float>::denorm_min()));
  legal(set(&Problem::o, contiguous(DType::f64, {2, 4, 3, 6})));
  legal(set(&Problem::lse, contiguous(DType::f64, {2, 4, 3})));
  legal(set(&Problem::alibi_slopes, contiguous(DType::f32, {1, 4})));
  legal(set(&Problem::sinks, TensorDesc::strided(DType::f32, {4}, {int64_t{1} << 52})));
  legal(set(&Problem::k_scale, contiguous(DType::f32, {1, 1, 1})), Base::full);
  legal(set(&Problem::kv_scale_block, kLongest), Base::dense);
  legal(stride(&Problem::q, 2, -8));
  legal(stride(&Problem::k, 1, 0));
  legal(stride(&Problem::o, 2, -6));
  legal(stride(&Problem::o, 0, -72));
  legal(stride(&Problem::o, 0, int64_t{1} << 40));
  legal([](Problem& p) {  // bshd
    p.o = TensorDesc::strided(DType::f32, {2, 4, 3, 6}, {72, 6, 24, 1});
    p.lse = TensorDesc::strided(DType::f32, {2, 4, 3}, {12, 1, 4});
  });
  legal([](Problem& p) {
    p.alignment = Alignment::given;
    p.causal_offset = -kFar;
  });
  legal([](Problem& p) {
    p.alignment = Alignment::given;
    p.causal_offset = kFar;
    p.window_left = p.window_right = kFar;
  });
}

// Sq and Skv in the shapes of a packed problem's bias, mask and scales: the lengths of the longest
// entries if they are given, otherwise the totals.
TEST(Resolve, PairsOfAPackedBatchAreCountedToTheLongestEntry) {
  struct Row {
    int64_t max_q, max_kv, seqlen_q, seqlen_kv;
  };
  for (const Row& row : {Row{0, 0, 7, 9}, Row{4, 6, 4, 6}, Row{4, 0, 4, 9}, Row{0, 6, 7, 6}}) {
    for (const int64_t queries : {4, 7}) {
      for (const int64_t keys : {6, 9}) {
        Problem problem = packed_problem(DType::f8e4m3);
        problem.max_seqlen_q = row.max_q;
        problem.max_seqlen_kv = row.max_kv;
        problem.bias = contiguous(DType::f32, {2, 1, queries, keys});
        problem.mask = contiguous(DType::boolean, {1, 4, queries, keys});
        problem.kv_scale_block = 1;
        problem.v_scale = contiguous(DType::f32, {2, 2, keys});
        EXPECT_EQ(resolve(problem).ok(), queries == row.seqlen_q && keys == row.seqlen_kv)
            << row.max_q << ' ' << row.max_kv << ' ' << queries << ' ' << keys << ": "
            << resolve(problem).status().message();
      }
    }
  }
}

TEST(Resolve, ZeroSizesAreLegal) {
  for (int bits = 1; bits < 32; ++bits) {
    const auto extent = [&](int bit, int64_t whole) { return (bits >> bit & 1) != 0 ? 0 : whole; };
    const int64_t batch = extent(0, 2), heads_q = extent(1, 4), heads_kv = extent(2, 2);
    const int64_t queries = extent(3, 3), keys = extent(4, 5);
    Problem problem;
    problem.q = contiguous(DType::f32, {batch, heads_q, queries, 8});
    problem.k = contiguous(DType::f32, {batch, heads_kv, keys, 8});
    problem.v = contiguous(DType::f32, {batch, heads_kv, keys, 6});
    problem.o = contiguous(DType::f32, {batch, heads_q, queries, 6});
    problem.lse = contiguous(DType::f32, {batch, heads_q, queries});
    problem.bias = contiguous(DType::f32, {batch, heads_q, queries, keys});
    EXPECT_EQ(resolve(problem).ok(), heads_kv > 0 || heads_q == 0) << bits;
  }
  Problem packed = packed_problem();
  packed.q = contiguous(DType::f32, {0, 4, 8});
  packed.k = contiguous(DType::f32, {0, 2, 8});
  packed.v = contiguous(DType::f32, {0, 2, 6});
  packed.o = contiguous(DType::f32, {0, 4, 6});
  packed.lse = contiguous(DType::f32, {0, 4});
  EXPECT_TRUE(resolve(packed).ok());
  packed.cu_seqlens_q = packed.cu_seqlens_kv = contiguous(DType::i32, {1});
  EXPECT_TRUE(resolve(packed).ok());
  EXPECT_EQ(resolved(packed).batch, 0);
}

TEST(Resolve, MessagesOfDescriptorsCannotBreakIt) {
  TensorDesc tensor = contiguous(DType::f32, {kMax, kMax, kMax, kMax});  // strides wrap
  for (TensorDesc Problem::*member : {&Problem::q, &Problem::k, &Problem::v, &Problem::o}) {
    Problem problem = dense_problem();
    problem.*member = tensor;
    EXPECT_EQ(resolve(problem).status().code(), StatusCode::invalid_argument);
  }
  EXPECT_EQ(resolve(Problem{}).status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace flashcore

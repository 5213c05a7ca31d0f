// The operands of every call, a line each, in the order of C's structs.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "flashcore/quantize.hpp"
#include "flashcore/serving.hpp"
#include "problem/memory.hpp"
#include "problem/operand.hpp"
#include "problem/status.hpp"

namespace flashcore {

template <class A, class P, class C>
struct Structs {
  using Arguments = A;
  using CProblem = P;
  using CArguments = C;
};
template <>
struct StructsOf<Problem> : Structs<Arguments, flashcore_problem, flashcore_arguments> {};
template <>
struct StructsOf<Gradients>
    : Structs<BackwardArguments, flashcore_gradients, flashcore_backward_arguments> {};
template <>
struct StructsOf<Merge>
    : Structs<MergeArguments, flashcore_merge_problem, flashcore_merge_arguments> {};
template <>
struct StructsOf<Append>
    : Structs<AppendArguments, flashcore_append_problem, flashcore_append_arguments> {};
template <>
struct StructsOf<Quantize>
    : Structs<QuantizeArguments, flashcore_quantize_problem, flashcore_quantize_arguments> {};

namespace operands {

using enum DType;
inline constexpr DTypes kWide = {f32, f16, bf16}, kFp8 = {f8e4m3, f8e5m2},
                        kInputs = {f32, f16, bf16, f8e4m3, f8e5m2},
                        kFloats = {f32, f16, bf16, f8e4m3, f8e5m2, f64}, kExact = {f32, f64};

inline constexpr Shapes kQ = {{kPacked, "[total_q, Hq, Dqk]"}, "[B, Hq, Sq, Dqk]"};
inline constexpr Shapes kK = {{kInPages, "[num_pages, Hkv, page_size, Dqk]"},
                              {kPacked, "[total_kv, Hkv, Dqk]"},
                              "[B, Hkv, Skv, Dqk]"};
inline constexpr Shapes kV = {{kTransposed, "[B, Hkv, Dv, columns]"},
                              {kInPages, "[num_pages, Hkv, page_size, Dv]"},
                              {kPacked, "[total_kv, Hkv, Dv]"},
                              "[B, Hkv, Skv, Dv]"};
inline constexpr Shapes kO = {{kPacked, "[total_q, Hq, Dv]"}, "[B, Hq, Sq, Dv]"};
inline constexpr Shapes kLse = {{kPacked, "[total_q, Hq]"}, "[B, Hq, Sq]"};
inline constexpr Shapes kPairs = {"[B|1, Hq|1, Sq|1, Skv|1]"};
inline constexpr Shapes kSlopes = {"[B|1, Hq]", "[Hq]"};
inline constexpr Shapes kHeads = {"[B|1, Hq|1]"};
inline constexpr Shapes kBlocks = {{kInPages, "[num_pages|1, Hkv|1, blocks|1]"},
                                   "[B|1, Hkv|1, blocks|1]"};
inline constexpr Shapes kStarts = {"[B + 1]"}, kEntries = {"[B]"};

#define FLASHCORE_LINE(What, name, ...)                                                           \
  Members<What, &What::name, &StructsOf<What>::Arguments::name, &StructsOf<What>::CProblem::name, \
          &StructsOf<What>::CArguments::name>::line(#name,                                        \
                                                    offsetof(StructsOf<What>::CProblem, name),    \
                                                    offsetof(StructsOf<What>::CArguments, name),  \
                                                    __VA_ARGS__)

#define FLASHCORE_PROBLEM(...) FLASHCORE_LINE(Problem, __VA_ARGS__)
inline constexpr std::array kProblem = {
    FLASHCORE_PROBLEM(q, kInputs, kQ).means("Queries"),
    FLASHCORE_PROBLEM(k, kInputs, kK).means("Keys"),
    FLASHCORE_PROBLEM(v, kInputs, kV).means("Values"),
    FLASHCORE_PROBLEM(o, kFloats, kO),
    FLASHCORE_PROBLEM(lse, kExact, kLse),
    FLASHCORE_PROBLEM(bias, kWide, kPairs).means("Added to the scores"),
    FLASHCORE_PROBLEM(mask, {boolean}, kPairs).means("Boolean: which pairs may attend"),
    FLASHCORE_PROBLEM(alibi_slopes, kSlopes).means("ALiBi"),
    FLASHCORE_PROBLEM(sinks, {"[Hq]"}).means("One logit per head that joins the denominator"),
    FLASHCORE_PROBLEM(q_scale, kHeads).means("Scale of an fp8 q"),
    FLASHCORE_PROBLEM(k_scale, kBlocks).means("Scale of an fp8 k"),
    FLASHCORE_PROBLEM(v_scale, kBlocks).means("Scale of an fp8 v"),
    FLASHCORE_PROBLEM(cu_seqlens_q, kStarts)
        .means("Packed batch: where the queries of each sequence begin"),
    FLASHCORE_PROBLEM(cu_seqlens_kv, kStarts)
        .means("The same for the keys; q, k and v are then [total, H, D]"),
    FLASHCORE_PROBLEM(seqlens_q, kEntries).means("Number of queries in use"),
    FLASHCORE_PROBLEM(seqlens_kv, kEntries).means("Number of keys in use"),
    FLASHCORE_PROBLEM(causal_offsets, kEntries)
        .means("With --alignment given: the offset of each sequence"),
    FLASHCORE_PROBLEM(dropout_state, {"[2]"}),
    FLASHCORE_PROBLEM(page_table, {"[B, max_pages]"})
        .means("K and v are [pages, Hkv, page size, D]: pages of sequences"),
    FLASHCORE_PROBLEM(kv_indptr, kStarts)
        .means("The same as one list: where the pages of each sequence begin"),
    FLASHCORE_PROBLEM(kv_indices, {"[total_pages]"}).means("The list of pages"),
    FLASHCORE_PROBLEM(kv_last_page_len, kEntries)
        .means("Rows in use of the last page of each sequence"),
    FLASHCORE_PROBLEM(cache_leftpad, kEntries)
        .means("Rows of the cache before the first key of each sequence"),
    FLASHCORE_PROBLEM(page_status, {"[1]"}),
    FLASHCORE_PROBLEM(tree_mask, {{kPacked, "[total_q, words]"}, "[B|1, Sq, words]"})
        .means("Bits of a speculative tree: which keys past the offset"),
    FLASHCORE_PROBLEM(o_scale, kHeads).means("What an fp8 O is divided by"),
    FLASHCORE_PROBLEM(amax_o, kHeads),
    FLASHCORE_PROBLEM(amax_s, kHeads),
    FLASHCORE_PROBLEM(max_logit, kHeads),
};
#undef FLASHCORE_PROBLEM

#define FLASHCORE_GRADIENTS(...) FLASHCORE_LINE(Gradients, __VA_ARGS__)
inline constexpr std::array kGradients = {
    FLASHCORE_GRADIENTS(d_o, kFloats, kO),
    FLASHCORE_GRADIENTS(dq, kFloats, kQ),
    FLASHCORE_GRADIENTS(dk, kFloats, kK),
    FLASHCORE_GRADIENTS(dv, kFloats, kV),
    FLASHCORE_GRADIENTS(d_lse, kExact, kLse),
    FLASHCORE_GRADIENTS(d_bias, kFloats, kPairs),
    FLASHCORE_GRADIENTS(d_sinks, kExact, {"[Hq]"}),
    FLASHCORE_GRADIENTS(d_alibi_slopes, kExact, kSlopes),
};
#undef FLASHCORE_GRADIENTS

#define FLASHCORE_MERGE(...) FLASHCORE_LINE(Merge, __VA_ARGS__)
inline constexpr std::array kMerge = {
    FLASHCORE_MERGE(o_a, kWide, kO),
    FLASHCORE_MERGE(o_b, kWide, kO),
    FLASHCORE_MERGE(lse_a, kLse),
    FLASHCORE_MERGE(lse_b, kLse),
    FLASHCORE_MERGE(o, kWide, kO, "o_a o_b"),
    FLASHCORE_MERGE(lse, kLse, "lse_a lse_b"),
};
#undef FLASHCORE_MERGE

#define FLASHCORE_APPEND(...) FLASHCORE_LINE(Append, __VA_ARGS__)
inline constexpr std::array kAppend = {
    FLASHCORE_APPEND(k_new, kInputs, {{kPacked, "[total, Hkv, Dqk]"}, "[B, Hkv, Snew, Dqk]"}),
    FLASHCORE_APPEND(v_new, kInputs, {{kPacked, "[total, Hkv, Dv]"}, "[B, Hkv, Snew, Dv]"}),
    FLASHCORE_APPEND(k, kInputs, kK),
    FLASHCORE_APPEND(v, kInputs, kV),
    FLASHCORE_APPEND(seqlens_kv, kEntries),
    FLASHCORE_APPEND(seqlens_new, kEntries),
    FLASHCORE_APPEND(cu_seqlens_new, kStarts),
    FLASHCORE_APPEND(page_table, {"[B, max_pages]"}),
    FLASHCORE_APPEND(kv_indptr, kStarts),
    FLASHCORE_APPEND(kv_indices, {"[total_pages]"}),
    FLASHCORE_APPEND(cache_leftpad, kEntries),
    FLASHCORE_APPEND(page_status, {"[1]"}),
    FLASHCORE_APPEND(k_scale, kBlocks),
    FLASHCORE_APPEND(v_scale, kBlocks),
    FLASHCORE_APPEND(rope_cos, {"[positions, rotary_dim / 2]"}),
    FLASHCORE_APPEND(rope_sin, {"[positions, rotary_dim / 2]"}),
    FLASHCORE_APPEND(q, kInputs, {{kPacked, "[total, Hq, Dqk]"}, "[B, Hq, Snew, Dqk]"}),
    FLASHCORE_APPEND(q_out, kInputs, {{kPacked, "[total, Hq, Dqk]"}, "[B, Hq, Snew, Dqk]"}, "q"),
};
#undef FLASHCORE_APPEND

#define FLASHCORE_QUANTIZE(...) FLASHCORE_LINE(Quantize, __VA_ARGS__)
inline constexpr std::array kQuantize = {
    FLASHCORE_QUANTIZE(x, kWide, {{kPacked, "[total, H, D]"}, "[B, H, S, D]"}),
    FLASHCORE_QUANTIZE(x_out, kFp8, {{kPacked, "[total, H, D]"}, "[B, H, S, D]"}),
    FLASHCORE_QUANTIZE(scale, {"[B|1, H|1, blocks|1]", "[B|1, H|1]"}),
    FLASHCORE_QUANTIZE(mean, {"[B, H, D]"}),
    FLASHCORE_QUANTIZE(cu_seqlens, kStarts),
    FLASHCORE_QUANTIZE(seqlens, kEntries),
};
#undef FLASHCORE_QUANTIZE

#undef FLASHCORE_LINE

// A call without structs.
inline constexpr std::array kTransposeV = {
    Line{.name = "v", .types = kFp8, .shapes = {"[B, H, S, D]"}},
    Line{.name = "v_out", .is_output = true, .types = kFp8, .shapes = {"[B, H, D, columns]"}},
};

}  // namespace operands

// The lines of a call, by its problem.
template <class What>
inline constexpr int kOperands = 0;
template <>
inline constexpr const auto& kOperands<Problem> = operands::kProblem;
template <>
inline constexpr const auto& kOperands<Gradients> = operands::kGradients;
template <>
inline constexpr const auto& kOperands<Merge> = operands::kMerge;
template <>
inline constexpr const auto& kOperands<Append> = operands::kAppend;
template <>
inline constexpr const auto& kOperands<Quantize> = operands::kQuantize;

inline NamedMemory memory_of(const Line& line, const TensorDesc& tensor, const void* data) {
  return {line.name, data, tensor.dtype, footprint(tensor, data), line.is_output, line.may_be};
}

// Checks the types of all tensors.
template <class What>
Status check_types(const What& what) {
  for (const auto& line : kOperands<What>) {
    const TensorDesc* const tensor = line.find(what);
    if (tensor != nullptr) FLASHCORE_RETURN_IF_ERROR(check_type(line, *tensor));
  }
  return {};
}

// Checks the shapes of the tensors from one line on, to the line before another.
template <class What>
Status check_shapes(const What& what, int forms, Extents& extents, std::string_view from,
                    std::string_view end = {}) {
  bool begun = false;
  for (const auto& line : kOperands<What>) {
    if (line.name == end) break;
    begun |= line.name == from;
    const TensorDesc* const tensor = begun ? line.find(what) : nullptr;
    if (tensor != nullptr) FLASHCORE_RETURN_IF_ERROR(check_shape(line, *tensor, forms, extents));
  }
  return {};
}

// Checks the pointers of a run, and that each output shares no memory with another tensor.
template <class What>
Status check_memory(const What& what, const typename StructsOf<What>::Arguments& args) {
  std::array<NamedMemory, kOperands<What>.size()> all;
  size_t count = 0;
  for (const auto& line : kOperands<What>) {
    const TensorDesc* const tensor = line.find(what);
    if (tensor != nullptr) all[count++] = memory_of(line, *tensor, line.data(args));
  }
  return check_memory(std::span(all).first(count));
}

}  // namespace flashcore

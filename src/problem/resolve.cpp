// Turns a caller's description into what backends read, and refuses malformed descriptions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "problem/dtypes.hpp"
#include "problem/layout.hpp"
#include "problem/lengths.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {
namespace {

// Larger offsets are refused, so that sums of a few of them never overflow 64 bits.
constexpr int64_t kLargestOffset = int64_t{1} << 32;

bool is_float_input(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ||
         dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
}

// Finds out how pages are listed: not at all, in a table, or in one flat list.
Status resolve_paging(const Problem& problem, ForwardProblem& p) {
  p.paging.flat = problem.kv_indptr.has_value() || problem.kv_indices.has_value();
  p.paging.present = p.paging.flat || problem.page_table.has_value();
  if (p.paging.flat && !(problem.kv_indptr && problem.kv_indices)) {
    return invalid("{}: is missing, wanted both kv_indptr and kv_indices or neither",
                   problem.kv_indptr ? "kv_indices" : "kv_indptr");
  }
  if (p.paging.flat && problem.page_table) {
    return invalid("page_table: is present with kv_indices, wanted one of them");
  }
  if (problem.kv_last_page_len && !p.paging.flat) {
    return invalid("kv_last_page_len: is present, wanted it only with kv_indices");
  }
  if (problem.page_status && !p.paging.present) {
    return invalid("page_status: is present, wanted it only with page_table or kv_indices");
  }
  if (p.paging.present && problem.cu_seqlens_kv) {
    return invalid("cu_seqlens_kv: is present, wanted only cu_seqlens_q with keys in pages");
  }
  return {};
}

Status check_input_types(const TensorDesc& q, const TensorDesc& k, const TensorDesc& v) {
  for (const auto& [name, tensor] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    if (!is_float_input(tensor->dtype)) {
      return invalid("{}: dtype is {}, wanted f32, f16, bf16, f8e4m3 or f8e5m2", name,
                     to_string(tensor->dtype));
    }
  }
  if (k.dtype != q.dtype && !is_fp8(k.dtype)) {
    return invalid("k: dtype is {}, wanted q's {}, or {}fp8", to_string(k.dtype),
                   to_string(q.dtype), is_fp8(q.dtype) ? "other " : "");
  }
  if (v.dtype != k.dtype && !(is_fp8(k.dtype) && is_fp8(v.dtype))) {
    return invalid("v: dtype is {}, wanted k's {}{}", to_string(v.dtype), to_string(k.dtype),
                   is_fp8(k.dtype) ? ", or other fp8" : "");
  }
  return {};
}

// Checks a V that is stored transposed, [B, Hkv, Dv, columns], before anything else reads it.
Status check_transposed(const Problem& problem, const ForwardProblem& p) {
  if (!problem.v_transposed) return {};
  if (!is_fp8(problem.v.dtype)) {
    return invalid("v_transposed: is true with a v of {}, wanted it only with fp8",
                   to_string(problem.v.dtype));
  }
  if (p.paging.present) {
    return invalid("v_transposed: is true with {}, wanted false with keys in pages",
                   p.paging.flat ? "kv_indices" : "page_table");
  }
  if (p.packed) return invalid("v_transposed: is true with cu_seqlens_kv, wanted false if packed");
  return {};
}

Status resolve_transposed(const TensorDesc& v, ForwardProblem& p) {
  constexpr const char* kShape = "[B, Hkv, Dv, columns]";
  const int64_t columns = v.shape[3];
  FLASHCORE_RETURN_IF_ERROR(
      check_shape("v", v, {p.batch, p.heads_kv, p.head_dim_v, columns}, false, kShape));
  if (columns % kColumnBlock != 0 || columns < p.seqlen_kv) {
    return invalid("v: shape {} has {} columns, wanted a multiple of {}, at least k's {} rows",
                   shape_text(v), columns, kColumnBlock, p.seqlen_kv);
  }
  p.v_transposed = true;
  p.v_columns = columns;
  return {};
}

Status resolve_tensors(const Problem& problem, ForwardProblem& p) {
  const auto& [q, k, v, o] = std::tie(problem.q, problem.k, problem.v, problem.o);
  FLASHCORE_RETURN_IF_ERROR(resolve_paging(problem, p));
  p.packed = problem.cu_seqlens_q.has_value() || problem.cu_seqlens_kv.has_value();
  if (p.packed && !(problem.cu_seqlens_q && (problem.cu_seqlens_kv || p.paging.present))) {
    return invalid("{}: is missing, wanted both cu_seqlens_q and cu_seqlens_kv or neither",
                   problem.cu_seqlens_q ? "cu_seqlens_kv" : "cu_seqlens_q");
  }
  const int32_t rank = p.packed ? 3 : 4;
  const int32_t kv_rank = p.packed_kv() ? 3 : 4;
  const char* const q_shape = p.packed ? "[total_q, Hq, Dqk]" : "[B, Hq, Sq, Dqk]";
  const char* const k_shape = p.paging.present ? "[num_pages, Hkv, page_size, Dqk]"
                              : p.packed       ? "[total_kv, Hkv, Dqk]"
                                               : "[B, Hkv, Skv, Dqk]";
  const char* const v_shape = problem.v_transposed ? "[B, Hkv, Dv, columns]"
                              : p.paging.present   ? "[num_pages, Hkv, page_size, Dv]"
                              : p.packed           ? "[total_kv, Hkv, Dv]"
                                                   : "[B, Hkv, Skv, Dv]";
  const char* const o_shape = p.packed ? "[total_q, Hq, Dv]" : "[B, Hq, Sq, Dv]";

  FLASHCORE_RETURN_IF_ERROR(check_input_types(q, k, v));
  FLASHCORE_RETURN_IF_ERROR(check_transposed(problem, p));
  if (!is_float_input(o.dtype) && o.dtype != DType::f64) {
    return invalid("o: dtype is {}, wanted a floating-point type", to_string(o.dtype));
  }
  FLASHCORE_RETURN_IF_ERROR(check_layout("q", q, rank, q_shape));
  FLASHCORE_RETURN_IF_ERROR(check_layout("k", k, kv_rank, k_shape));
  FLASHCORE_RETURN_IF_ERROR(check_layout("v", v, kv_rank, v_shape));

  p.dtype = q.dtype;
  p.k_dtype = k.dtype;
  p.v_dtype = v.dtype;
  p.o_dtype = o.dtype;
  if (p.packed_kv()) {
    p.total_kv = k.shape[0], p.heads_kv = k.shape[1], p.head_dim_v = v.shape[2];
  } else {
    p.heads_kv = k.shape[1], p.seqlen_kv = k.shape[2];
    p.head_dim_v = v.shape[problem.v_transposed ? 2 : 3];
  }
  if (p.packed) {
    p.total_q = q.shape[0], p.heads_q = q.shape[1], p.head_dim_qk = q.shape[2];
    const TensorDesc& cu = *problem.cu_seqlens_q;
    FLASHCORE_RETURN_IF_ERROR(check_layout("cu_seqlens_q", cu, 1, "[B + 1]"));
    if (cu.shape[0] < 1) return invalid("cu_seqlens_q: shape is [0], wanted [B + 1]");
    p.batch = cu.shape[0] - 1;
  } else {
    p.batch = q.shape[0], p.heads_q = q.shape[1], p.seqlen_q = q.shape[2];
    p.head_dim_qk = q.shape[3];
  }
  if (p.paging.present) {
    p.paging.num_pages = k.shape[0];
    p.paging.page_size = k.shape[2];
  }
  if (p.head_dim_qk < 1) return invalid("q: head dimension is 0, wanted at least 1");
  if (p.head_dim_v < 1) return invalid("v: head dimension is 0, wanted at least 1");
  if (p.heads_q > 0 && (p.heads_kv == 0 || p.heads_q % p.heads_kv != 0)) {
    return invalid("k: shape {} has {} heads, wanted a divisor of q's {}", shape_text(k),
                   p.heads_kv, p.heads_q);
  }
  if (p.packed_kv()) {
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("k", k, {p.total_kv, p.heads_kv, p.head_dim_qk}, false, k_shape));
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("v", v, {p.total_kv, p.heads_kv, p.head_dim_v}, false, v_shape));
  } else {
    const int64_t lead = p.paging.present ? p.paging.num_pages : p.batch;
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("k", k, {lead, p.heads_kv, p.seqlen_kv, p.head_dim_qk}, false, k_shape));
    FLASHCORE_RETURN_IF_ERROR(
        problem.v_transposed
            ? resolve_transposed(v, p)
            : check_shape("v", v, {lead, p.heads_kv, p.seqlen_kv, p.head_dim_v}, false, v_shape));
  }
  if (p.packed) {
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("o", o, {p.total_q, p.heads_q, p.head_dim_v}, false, o_shape));
  } else {
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("o", o, {p.batch, p.heads_q, p.seqlen_q, p.head_dim_v}, false, o_shape));
  }
  for (const auto& [name, tensor] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}, {"o", &o}}) {
    FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows(name, *tensor));
  }
  FLASHCORE_RETURN_IF_ERROR(check_no_overlap("o", o));
  p.q = row_strides(q, p.packed);
  p.k = row_strides(k, p.packed_kv());
  p.v = row_strides(v, p.packed_kv());
  p.o = row_strides(o, p.packed);

  if (problem.lse) {
    const TensorDesc& lse = *problem.lse;
    if (lse.dtype != DType::f32 && lse.dtype != DType::f64) {
      return invalid("lse: dtype is {}, wanted f32 or f64", to_string(lse.dtype));
    }
    if (p.packed) {
      FLASHCORE_RETURN_IF_ERROR(
          check_shape("lse", lse, {p.total_q, p.heads_q}, false, "[total_q, Hq]"));
    } else {
      FLASHCORE_RETURN_IF_ERROR(
          check_shape("lse", lse, {p.batch, p.heads_q, p.seqlen_q}, false, "[B, Hq, Sq]"));
    }
    FLASHCORE_RETURN_IF_ERROR(check_no_overlap("lse", lse));
    p.has_lse = true;
    p.lse_dtype = lse.dtype;
    p.lse = row_strides(lse, p.packed);
  }
  return {};
}

}  // namespace

Status resolve_length_vector(std::string_view name, const std::optional<TensorDesc>& tensor,
                             int64_t wanted, std::string_view shape, VectorInput& out) {
  if (!tensor) return {};
  FLASHCORE_RETURN_IF_ERROR(check_dtype(name, *tensor, DType::i32));
  FLASHCORE_RETURN_IF_ERROR(check_shape(name, *tensor, {wanted}, false, shape));
  out = {.present = true, .batch = used_stride(*tensor, 0), .head = 0};
  return {};
}

namespace {

// Resolves where entries' pages are listed, and the maximum of rows per entry.
Status resolve_table(const Problem& problem, ForwardProblem& p) {
  if (!p.paging.present) return {};
  Paging& paging = p.paging;
  if (paging.flat) {
    const TensorDesc& indices = *problem.kv_indices;
    FLASHCORE_RETURN_IF_ERROR(check_dtype("kv_indices", indices, DType::i32));
    FLASHCORE_RETURN_IF_ERROR(check_layout("kv_indices", indices, 1, "[total_pages]"));
    paging.table_pages = indices.shape[0];
    paging.table_page = used_stride(indices, 0);
  } else {
    const TensorDesc& table = *problem.page_table;
    FLASHCORE_RETURN_IF_ERROR(check_dtype("page_table", table, DType::i32));
    FLASHCORE_RETURN_IF_ERROR(check_layout("page_table", table, 2, "[B, max_pages]"));
    paging.table_pages = table.shape[1];
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("page_table", table, {p.batch, paging.table_pages}, false, "[B, max_pages]"));
    paging.table_batch = used_stride(table, 0);
    paging.table_page = used_stride(table, 1);
  }
  // Extents are below 2^31, so this fits. Without pages, an entry has no rows.
  const int64_t rows = paging.num_pages == 0 ? 0 : paging.table_pages * paging.page_size;
  if (problem.max_seqlen_kv < 0 || problem.max_seqlen_kv > rows) {
    return invalid("max_seqlen_kv: is {}, wanted 0 to {}, the rows that {} has room for",
                   problem.max_seqlen_kv, rows, paging.flat ? "kv_indices" : "page_table");
  }
  p.seqlen_kv = problem.max_seqlen_kv == 0 ? rows : problem.max_seqlen_kv;
  if (p.seqlen_kv > kLargestExtent) {
    return invalid("max_seqlen_kv: is 0 where an entry has up to {} rows, wanted at most {}", rows,
                   kLargestExtent);
  }
  return {};
}

Status resolve_page_status(const Problem& problem, ForwardProblem& p) {
  if (!problem.page_status) return {};
  FLASHCORE_RETURN_IF_ERROR(check_dtype("page_status", *problem.page_status, DType::i32));
  FLASHCORE_RETURN_IF_ERROR(check_shape("page_status", *problem.page_status, {1}, false, "[1]"));
  p.page_status = {.present = true, .batch = 0, .head = 0};
  return {};
}

Status resolve_lengths(const Problem& problem, ForwardProblem& p) {
  FLASHCORE_RETURN_IF_ERROR(resolve_length_vector("cu_seqlens_q", problem.cu_seqlens_q, p.batch + 1,
                                                  "[B + 1]", p.cu_seqlens_q));
  FLASHCORE_RETURN_IF_ERROR(resolve_length_vector("cu_seqlens_kv", problem.cu_seqlens_kv,
                                                  p.batch + 1, "[B + 1]", p.cu_seqlens_kv));
  FLASHCORE_RETURN_IF_ERROR(
      resolve_length_vector("seqlens_q", problem.seqlens_q, p.batch, "[B]", p.seqlens_q));
  FLASHCORE_RETURN_IF_ERROR(
      resolve_length_vector("seqlens_kv", problem.seqlens_kv, p.batch, "[B]", p.seqlens_kv));
  FLASHCORE_RETURN_IF_ERROR(resolve_length_vector("causal_offsets", problem.causal_offsets, p.batch,
                                                  "[B]", p.causal_offsets));
  FLASHCORE_RETURN_IF_ERROR(
      resolve_length_vector("kv_indptr", problem.kv_indptr, p.batch + 1, "[B + 1]", p.kv_indptr));
  FLASHCORE_RETURN_IF_ERROR(resolve_length_vector("kv_last_page_len", problem.kv_last_page_len,
                                                  p.batch, "[B]", p.kv_last_page_len));
  FLASHCORE_RETURN_IF_ERROR(resolve_length_vector("cache_leftpad", problem.cache_leftpad, p.batch,
                                                  "[B]", p.cache_leftpad));
  FLASHCORE_RETURN_IF_ERROR(resolve_page_status(problem, p));
  if (p.causal_offsets.present && problem.alignment != Alignment::given) {
    return invalid("causal_offsets: is present, wanted it only with the given alignment");
  }
  for (const auto& [name, bound, packed, total, resolved] :
       {std::tuple{"max_seqlen_q", problem.max_seqlen_q, p.packed, p.total_q, &p.seqlen_q},
        std::tuple{"max_seqlen_kv", problem.max_seqlen_kv, p.packed_kv(), p.total_kv,
                   &p.seqlen_kv}}) {
    if (p.paging.present && resolved == &p.seqlen_kv) continue;  // resolve_table
    if (!packed) {
      if (bound != 0) return invalid("{}: is {}, wanted 0 unless packed", name, bound);
      continue;
    }
    if (bound < 0 || bound > total) {
      return invalid("{}: is {}, wanted 0 to {}, the rows of the packed tensor", name, bound,
                     total);
    }
    *resolved = bound == 0 ? total : bound;
  }
  return {};
}

Status resolve_pair_input(std::string_view name, const std::optional<TensorDesc>& tensor,
                          const ForwardProblem& p, PairInput& out) {
  if (!tensor) return {};
  FLASHCORE_RETURN_IF_ERROR(check_shape(
      name, *tensor, {p.batch, p.heads_q, p.seqlen_q, p.seqlen_kv}, true, "[B, Hq, Sq, Skv]"));
  out = pair_strides(*tensor);
  return {};
}

Status resolve_tree_mask(const Problem& problem, ForwardProblem& p) {
  if (!problem.tree_mask) return {};
  const TensorDesc& mask = *problem.tree_mask;
  constexpr std::string_view kName = "tree_mask";
  FLASHCORE_RETURN_IF_ERROR(check_dtype(kName, mask, DType::i32));
  if (p.packed) {
    FLASHCORE_RETURN_IF_ERROR(check_layout(kName, mask, 2, "[total_q, words]"));
    FLASHCORE_RETURN_IF_ERROR(
        check_shape(kName, mask, {p.total_q, mask.shape[1]}, false, "[total_q, words]"));
  } else {
    FLASHCORE_RETURN_IF_ERROR(check_layout(kName, mask, 3, "[B, Sq, words]"));
    const int64_t batch = mask.shape[0] == 1 ? 1 : p.batch;
    FLASHCORE_RETURN_IF_ERROR(
        check_shape(kName, mask, {batch, p.seqlen_q, mask.shape[2]}, false, "[B, Sq, words]"));
  }
  const size_t first = p.packed ? 0 : 1;
  p.tree_mask = {.present = true,
                 .batch = p.packed || mask.shape[0] == 1 ? 0 : used_stride(mask, 0),
                 .query = used_stride(mask, first),
                 .word = used_stride(mask, first + 1),
                 .words = mask.shape[first + 1]};
  return {};
}

Status resolve_scale(std::string_view name, const std::optional<TensorDesc>& tensor,
                     const ForwardProblem& p, ScaleInput& out) {
  if (!tensor) return {};
  FLASHCORE_RETURN_IF_ERROR(check_dtype(name, *tensor, DType::f32));
  const int64_t rows = p.paging.present ? p.paging.page_size : p.seqlen_kv;
  const int64_t blocks = (rows + p.kv_scale_block - 1) / p.kv_scale_block;
  FLASHCORE_RETURN_IF_ERROR(check_shape(
      name, *tensor, {p.paging.present ? p.paging.num_pages : p.batch, p.heads_kv, blocks}, true,
      p.paging.present ? "[num_pages, Hkv, blocks]" : "[B, Hkv, blocks]"));
  out = {.present = true,
         .batch = used_stride(*tensor, 0),
         .head = used_stride(*tensor, 1),
         .block = used_stride(*tensor, 2)};
  return {};
}

Status resolve_optional_inputs(const Problem& problem, ForwardProblem& p) {
  if (problem.bias) {
    const DType dtype = problem.bias->dtype;
    if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
      return invalid("bias: dtype is {}, wanted f32, f16 or bf16", to_string(dtype));
    }
  }
  FLASHCORE_RETURN_IF_ERROR(resolve_pair_input("bias", problem.bias, p, p.bias));
  if (problem.mask) FLASHCORE_RETURN_IF_ERROR(check_dtype("mask", *problem.mask, DType::boolean));
  FLASHCORE_RETURN_IF_ERROR(resolve_pair_input("mask", problem.mask, p, p.mask));
  FLASHCORE_RETURN_IF_ERROR(resolve_tree_mask(problem, p));

  if (problem.alibi_slopes) {
    const TensorDesc& slopes = *problem.alibi_slopes;
    FLASHCORE_RETURN_IF_ERROR(check_dtype("alibi_slopes", slopes, DType::f32));
    if (slopes.rank == 1) {
      FLASHCORE_RETURN_IF_ERROR(check_shape("alibi_slopes", slopes, {p.heads_q}, false, "[Hq]"));
    } else {
      FLASHCORE_RETURN_IF_ERROR(
          check_layout("alibi_slopes", slopes, 2, "[B, Hq] (or rank 1 for [Hq])"));
      const int64_t batch = slopes.shape[0] == 1 ? 1 : p.batch;
      FLASHCORE_RETURN_IF_ERROR(
          check_shape("alibi_slopes", slopes, {batch, p.heads_q}, false, "[B, Hq]"));
    }
    p.alibi_slopes = head_strides(slopes);
  }
  if (problem.sinks) {
    FLASHCORE_RETURN_IF_ERROR(check_dtype("sinks", *problem.sinks, DType::f32));
    FLASHCORE_RETURN_IF_ERROR(check_shape("sinks", *problem.sinks, {p.heads_q}, false, "[Hq]"));
    p.sinks = head_strides(*problem.sinks);
  }

  for (const auto& [name, scale, dtype] : {std::tuple{"q_scale", &problem.q_scale, p.dtype},
                                           {"k_scale", &problem.k_scale, p.k_dtype},
                                           {"v_scale", &problem.v_scale, p.v_dtype}}) {
    if (scale->has_value() && !is_fp8(dtype)) {
      return invalid("{}: is present with {} inputs, wanted it only with fp8", name,
                     to_string(dtype));
    }
  }
  if (problem.kv_scale_block < 0 || problem.kv_scale_block > kLargestExtent) {
    return invalid("kv_scale_block: is {}, wanted 0 to {}", problem.kv_scale_block, kLargestExtent);
  }
  p.kv_scale_block = problem.kv_scale_block;
  if (p.kv_scale_block == 0) {
    p.kv_scale_block = std::max<int64_t>(p.paging.present ? p.paging.page_size : p.seqlen_kv, 1);
  }
  if (problem.q_scale) {
    FLASHCORE_RETURN_IF_ERROR(check_dtype("q_scale", *problem.q_scale, DType::f32));
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("q_scale", *problem.q_scale, {p.batch, p.heads_q}, true, "[B, Hq]"));
    p.q_scale = head_strides(*problem.q_scale);
  }
  FLASHCORE_RETURN_IF_ERROR(resolve_scale("k_scale", problem.k_scale, p, p.k_scale));
  FLASHCORE_RETURN_IF_ERROR(resolve_scale("v_scale", problem.v_scale, p, p.v_scale));
  return {};
}

// Resolves the outputs that go with O: its scale, and the largest values.
Status resolve_more_outputs(const Problem& problem, ForwardProblem& p) {
  if (problem.o_scale) {
    if (!is_fp8(p.o_dtype)) {
      return invalid("o_scale: is present with an o of {}, wanted it only with fp8",
                     to_string(p.o_dtype));
    }
    FLASHCORE_RETURN_IF_ERROR(check_dtype("o_scale", *problem.o_scale, DType::f32));
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("o_scale", *problem.o_scale, {p.batch, p.heads_q}, true, "[B, Hq]"));
    p.o_scale = head_strides(*problem.o_scale);
  }
  for (const auto& [name, largest, resolved] :
       {std::tuple{"amax_o", &problem.amax_o, &p.amax_o}, {"amax_s", &problem.amax_s, &p.amax_s}}) {
    if (!largest->has_value()) continue;
    const TensorDesc& tensor = **largest;
    FLASHCORE_RETURN_IF_ERROR(check_dtype(name, tensor, DType::f32));
    FLASHCORE_RETURN_IF_ERROR(check_shape(name, tensor, {p.batch, p.heads_q}, true, "[B, Hq]"));
    FLASHCORE_RETURN_IF_ERROR(check_no_overlap(name, tensor));
    *resolved = {.present = true,
                 .batches = tensor.shape[0],
                 .heads = tensor.shape[1],
                 .batch = used_stride(tensor, 0),
                 .head = used_stride(tensor, 1)};
  }
  return {};
}

Status resolve_options(const Problem& problem, ForwardProblem& p) {
  p.softmax_scale = problem.softmax_scale.value_or(
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim_qk))));
  if (!std::isfinite(p.softmax_scale)) {
    return invalid("softmax_scale: is {}, wanted a finite number", p.softmax_scale);
  }
  if (!(problem.softcap >= 0) || std::isinf(problem.softcap)) {
    return invalid("softcap: is {}, wanted 0 (off) or a positive finite number", problem.softcap);
  }
  p.softcap = problem.softcap;
  if (!(problem.dropout_p >= 0 && problem.dropout_p <= 1)) {
    return invalid("dropout_p: is {}, wanted 0 to 1", problem.dropout_p);
  }
  p.dropout_p = problem.dropout_p;
  if (problem.dropout_state) {
    FLASHCORE_RETURN_IF_ERROR(check_dtype("dropout_state", *problem.dropout_state, DType::i64));
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("dropout_state", *problem.dropout_state, {2}, false, "[2]"));
    p.dropout_state = {
        .present = p.dropout_p > 0, .batch = used_stride(*problem.dropout_state, 0), .head = 0};
  }
  for (const auto& [name, value] :
       {std::pair{"window_left", problem.window_left}, {"window_right", problem.window_right}}) {
    if (value < -1 || value > kLargestOffset) {
      return invalid("{}: is {}, wanted -1 (no limit) to {}", name, value, kLargestOffset);
    }
  }
  p.band = {problem.window_left, problem.window_right};
  if (problem.causal) p.band.right = 0;
  switch (problem.alignment) {
    case Alignment::top_left:
    case Alignment::bottom_right:
    case Alignment::given:
      break;
    default:
      return invalid("alignment: is {}, wanted top_left (0), bottom_right (1) or given (2)",
                     static_cast<int32_t>(problem.alignment));
  }
  p.alignment = problem.alignment;
  if (problem.causal_offset < -kLargestOffset || problem.causal_offset > kLargestOffset) {
    return invalid("causal_offset: is {}, wanted {} to {}", problem.causal_offset, -kLargestOffset,
                   kLargestOffset);
  }
  if (problem.causal_offset != 0 && problem.alignment != Alignment::given) {
    return invalid("causal_offset: is {}, wanted 0 unless the alignment is given",
                   problem.causal_offset);
  }
  if (problem.causal_offset != 0 && p.causal_offsets.present) {
    return invalid("causal_offset: is {}, wanted 0 with causal_offsets", problem.causal_offset);
  }
  p.causal_offset = problem.causal_offset;
  return {};
}

Status check_dtype_values(const Problem& problem) {
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value("q", problem.q));
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value("k", problem.k));
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value("v", problem.v));
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value("o", problem.o));
  for (const auto& [name, tensor] : {std::pair{"lse", &problem.lse},
                                     {"bias", &problem.bias},
                                     {"mask", &problem.mask},
                                     {"alibi_slopes", &problem.alibi_slopes},
                                     {"sinks", &problem.sinks},
                                     {"q_scale", &problem.q_scale},
                                     {"k_scale", &problem.k_scale},
                                     {"v_scale", &problem.v_scale},
                                     {"cu_seqlens_q", &problem.cu_seqlens_q},
                                     {"cu_seqlens_kv", &problem.cu_seqlens_kv},
                                     {"seqlens_q", &problem.seqlens_q},
                                     {"seqlens_kv", &problem.seqlens_kv},
                                     {"causal_offsets", &problem.causal_offsets},
                                     {"dropout_state", &problem.dropout_state},
                                     {"page_table", &problem.page_table},
                                     {"kv_indptr", &problem.kv_indptr},
                                     {"kv_indices", &problem.kv_indices},
                                     {"kv_last_page_len", &problem.kv_last_page_len},
                                     {"cache_leftpad", &problem.cache_leftpad},
                                     {"page_status", &problem.page_status},
                                     {"tree_mask", &problem.tree_mask},
                                     {"o_scale", &problem.o_scale},
                                     {"amax_o", &problem.amax_o},
                                     {"amax_s", &problem.amax_s}}) {
    if (tensor->has_value()) FLASHCORE_RETURN_IF_ERROR(check_dtype_value(name, **tensor));
  }
  return {};
}

}  // namespace

Result<ForwardProblem> resolve(const Problem& problem) {
  ForwardProblem p;
  FLASHCORE_RETURN_IF_ERROR(check_dtype_values(problem));
  FLASHCORE_RETURN_IF_ERROR(resolve_tensors(problem, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_table(problem, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_lengths(problem, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_optional_inputs(problem, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_more_outputs(problem, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_options(problem, p));
  return p;
}

}  // namespace flashcore

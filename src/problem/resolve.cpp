// Turns a caller's description into what backends read, and refuses malformed descriptions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "problem/dtypes.hpp"
#include "problem/layout.hpp"
#include "problem/operands.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {
namespace {

// Larger offsets are refused, so that sums of a few of them never overflow 64 bits.
constexpr int64_t kLargestOffset = int64_t{1} << 32;

int forms_of(const ForwardProblem& p, bool v_transposed) {
  return (p.packed ? kPacked : 0) | (p.paging.present ? kInPages : 0) |
         (v_transposed ? kTransposed : 0);
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

Status check_columns(const TensorDesc& v, int64_t columns, int64_t rows) {
  if (columns % kColumnBlock == 0 && columns >= rows) return {};
  return invalid("v: shape {} has {} columns, wanted a multiple of {}, at least k's {} rows",
                 shape_text(v), columns, kColumnBlock, rows);
}

Status resolve_tensors(const Problem& problem, Extents& extents, ForwardProblem& p) {
  const auto& [q, k, v, o] = std::tie(problem.q, problem.k, problem.v, problem.o);
  FLASHCORE_RETURN_IF_ERROR(resolve_paging(problem, p));
  p.packed = problem.cu_seqlens_q.has_value() || problem.cu_seqlens_kv.has_value();
  if (p.packed && !(problem.cu_seqlens_q && (problem.cu_seqlens_kv || p.paging.present))) {
    return invalid("{}: is missing, wanted both cu_seqlens_q and cu_seqlens_kv or neither",
                   problem.cu_seqlens_q ? "cu_seqlens_kv" : "cu_seqlens_q");
  }
  FLASHCORE_RETURN_IF_ERROR(check_input_types(q, k, v));
  FLASHCORE_RETURN_IF_ERROR(check_transposed(problem, p));

  const int forms = forms_of(p, problem.v_transposed);
  FLASHCORE_RETURN_IF_ERROR(check_shapes(problem, forms, extents, "q", "k"));
  p.heads_q = extents["Hq"];
  p.head_dim_qk = extents["Dqk"];
  if (p.head_dim_qk < 1) return invalid("q: head dimension is 0, wanted at least 1");
  FLASHCORE_RETURN_IF_ERROR(check_shapes(problem, forms, extents, "k", "v"));
  p.heads_kv = extents["Hkv"];
  p.seqlen_kv = extents["Skv"];
  if (p.heads_q > 0 && (p.heads_kv == 0 || p.heads_q % p.heads_kv != 0)) {
    return invalid("k: shape {} has {} heads, wanted a divisor of q's {}", shape_text(k),
                   p.heads_kv, p.heads_q);
  }
  FLASHCORE_RETURN_IF_ERROR(check_shapes(problem, forms, extents, "v", "o"));
  p.head_dim_v = extents["Dv"];
  if (p.head_dim_v < 1) return invalid("v: head dimension is 0, wanted at least 1");
  p.v_transposed = problem.v_transposed;
  p.v_columns = extents["columns"];
  if (p.v_transposed) FLASHCORE_RETURN_IF_ERROR(check_columns(v, p.v_columns, p.seqlen_kv));
  FLASHCORE_RETURN_IF_ERROR(check_shapes(problem, forms, extents, "o", "bias"));
  FLASHCORE_RETURN_IF_ERROR(check_shapes(problem, forms, extents, "cu_seqlens_q", "tree_mask"));

  p.batch = extents["B"];
  p.seqlen_q = extents["Sq"];
  p.total_q = extents["total_q"];
  p.total_kv = extents["total_kv"];
  if (p.paging.present) {
    p.paging.num_pages = extents["num_pages"];
    p.paging.page_size = extents["page_size"];
  }
  p.dtype = q.dtype;
  p.k_dtype = k.dtype;
  p.v_dtype = v.dtype;
  p.o_dtype = o.dtype;
  p.q = row_strides(q, p.packed);
  p.k = row_strides(k, p.packed_kv());
  p.v = row_strides(v, p.packed_kv());
  p.o = row_strides(o, p.packed);
  p.has_lse = problem.lse.has_value();
  if (problem.lse) {
    p.lse_dtype = problem.lse->dtype;
    p.lse = row_strides(*problem.lse, p.packed);
  }
  return {};
}

// Resolves where entries' pages are listed, and the maximum of rows per entry.
Status resolve_table(const Problem& problem, const Extents& extents, ForwardProblem& p) {
  if (!p.paging.present) return {};
  Paging& paging = p.paging;
  if (paging.flat) {
    paging.table_pages = extents["total_pages"];
    paging.table_page = used_stride(*problem.kv_indices, 0);
  } else {
    paging.table_pages = extents["max_pages"];
    paging.table_batch = used_stride(*problem.page_table, 0);
    paging.table_page = used_stride(*problem.page_table, 1);
  }
  // Extents are below 2^31, so this fits. Without pages, an entry has no rows.
  const int64_t rows = paging.num_pages == 0 ? 0 : paging.table_pages * paging.page_size;
  if (problem.max_seqlen_kv < 0 || problem.max_seqlen_kv > rows) {
    return invalid("max_seqlen_kv: is {}, wanted 0 to {}, the rows that {} has room for",
                   problem.max_seqlen_kv, rows, paging.flat ? "kv_indices" : "page_table");
  }
  p.seqlen_kv = problem.max_seqlen_kv == 0 ? rows : problem.max_seqlen_kv;
  if (p.seqlen_kv > kLargestExtent) {
    return invalid("max_seqlen_kv: is 0 where a sequence has up to {} rows, wanted at most {}",
                   rows, kLargestExtent);
  }
  return {};
}

Status resolve_lengths(const Problem& problem, ForwardProblem& p) {
  for (const auto& [lengths, resolved] : {std::pair{&problem.cu_seqlens_q, &p.cu_seqlens_q},
                                          {&problem.cu_seqlens_kv, &p.cu_seqlens_kv},
                                          {&problem.seqlens_q, &p.seqlens_q},
                                          {&problem.seqlens_kv, &p.seqlens_kv},
                                          {&problem.causal_offsets, &p.causal_offsets},
                                          {&problem.kv_indptr, &p.kv_indptr},
                                          {&problem.kv_last_page_len, &p.kv_last_page_len},
                                          {&problem.cache_leftpad, &p.cache_leftpad},
                                          {&problem.page_status, &p.page_status}}) {
    *resolved = entry_strides(*lengths);
  }
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

ScaleInput scale_strides(const std::optional<TensorDesc>& scale) {
  if (!scale) return {};
  return {.present = true,
          .batch = used_stride(*scale, 0),
          .head = used_stride(*scale, 1),
          .block = used_stride(*scale, 2)};
}

LargestOutput largest_strides(const std::optional<TensorDesc>& largest) {
  if (!largest) return {};
  return {.present = true,
          .batches = largest->shape[0],
          .heads = largest->shape[1],
          .batch = used_stride(*largest, 0),
          .head = used_stride(*largest, 1)};
}

// Checks that scales go with fp8, and resolves the blocks of K's and V's.
Status resolve_blocks(const Problem& problem, Extents& extents, ForwardProblem& p) {
  for (const auto& [name, scale, dtype] : {std::tuple{"q_scale", &problem.q_scale, p.dtype},
                                           {"k_scale", &problem.k_scale, p.k_dtype},
                                           {"v_scale", &problem.v_scale, p.v_dtype}}) {
    if (scale->has_value() && !is_fp8(dtype)) {
      return invalid("{}: is present with {} inputs, wanted it only with fp8", name,
                     to_string(dtype));
    }
  }
  if (problem.o_scale && !is_fp8(p.o_dtype)) {
    return invalid("o_scale: is present with an o of {}, wanted it only with fp8",
                   to_string(p.o_dtype));
  }
  if (problem.kv_scale_block < 0 || problem.kv_scale_block > kLargestExtent) {
    return invalid("kv_scale_block: is {}, wanted 0 to {}", problem.kv_scale_block, kLargestExtent);
  }
  const int64_t rows = p.paging.present ? p.paging.page_size : p.seqlen_kv;
  p.kv_scale_block = problem.kv_scale_block;
  if (p.kv_scale_block == 0) p.kv_scale_block = std::max<int64_t>(rows, 1);
  extents.set("blocks", (rows + p.kv_scale_block - 1) / p.kv_scale_block);
  return {};
}

// Resolves what goes with scores and with O.
Status resolve_scores(const Problem& problem, Extents& extents, ForwardProblem& p) {
  const int forms = forms_of(p, p.v_transposed);
  extents.set("Sq", p.seqlen_q);
  extents.set("Skv", p.seqlen_kv);
  FLASHCORE_RETURN_IF_ERROR(resolve_blocks(problem, extents, p));
  FLASHCORE_RETURN_IF_ERROR(check_shapes(problem, forms, extents, "bias", "cu_seqlens_q"));
  FLASHCORE_RETURN_IF_ERROR(check_shapes(problem, forms, extents, "tree_mask"));
  if (problem.bias) p.bias = pair_strides(*problem.bias);
  if (problem.mask) p.mask = pair_strides(*problem.mask);
  if (problem.tree_mask) {
    const TensorDesc& mask = *problem.tree_mask;
    const size_t first = p.packed ? 0 : 1;
    p.tree_mask = {.present = true,
                   .batch = p.packed ? 0 : used_stride(mask, 0),
                   .query = used_stride(mask, first),
                   .word = used_stride(mask, first + 1),
                   .words = extents["words"]};
  }
  if (problem.alibi_slopes) p.alibi_slopes = head_strides(*problem.alibi_slopes);
  if (problem.sinks) p.sinks = head_strides(*problem.sinks);
  if (problem.q_scale) p.q_scale = head_strides(*problem.q_scale);
  if (problem.o_scale) p.o_scale = head_strides(*problem.o_scale);
  p.k_scale = scale_strides(problem.k_scale);
  p.v_scale = scale_strides(problem.v_scale);
  for (const LargestValue& one : kLargestOutputs)
    p.*one.output = largest_strides(problem.*one.tensor);
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

}  // namespace

Result<ForwardProblem> resolve(const Problem& problem) {
  ForwardProblem p;
  Extents extents;
  FLASHCORE_RETURN_IF_ERROR(check_types(problem));
  FLASHCORE_RETURN_IF_ERROR(resolve_tensors(problem, extents, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_table(problem, extents, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_lengths(problem, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_scores(problem, extents, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_options(problem, p));
  return p;
}

}  // namespace flashcore

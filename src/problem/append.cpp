// Checks of append.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "problem/dtypes.hpp"
#include "problem/key_places.hpp"
#include "problem/layout.hpp"
#include "problem/operands.hpp"
#include "problem/serving.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {
namespace {

// Describes the cache as an attention problem: append has that problem's checks, with other names
// for the tensors that are not the cache's.
Problem as_attention(const Append& what) {
  Problem p;
  p.q = what.k_new;
  p.o = what.v_new;
  p.k = what.k;
  p.v = what.v;
  p.cu_seqlens_q = what.cu_seqlens_new;
  p.seqlens_q = what.seqlens_new;
  p.seqlens_kv = what.seqlens_kv;
  p.page_table = what.page_table;
  p.kv_indptr = what.kv_indptr;
  p.kv_indices = what.kv_indices;
  p.cache_leftpad = what.cache_leftpad;
  p.page_status = what.page_status;
  p.k_scale = what.k_scale;
  p.v_scale = what.v_scale;
  p.kv_scale_block = what.kv_scale_block;
  p.v_transposed = what.v_transposed;
  return p;
}

Status in_words_of_append(const Status& status) {
  std::string sentence = status.message();
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"q: ", "k_new: "},
                                 {"o: ", "v_new: "},
                                 {"seqlens_q: ", "seqlens_new: "},
                                 {"cu_seqlens_q: ", "cu_seqlens_new: "},
                                 {"max_seqlen_kv: ", "k: "}}) {
    if (sentence.starts_with(from)) {
      sentence = std::string(to) + sentence.substr(from.size());
      break;
    }
  }
  return {status.code(), sentence};
}

Status check_cache_type(std::string_view name, DType cache, DType rows) {
  if (cache == rows || (is_fp8(cache) && is_wide_float(rows))) return {};
  return invalid("{}: dtype is {}, wanted {}_new's {}{}", name, to_string(cache), name,
                 to_string(rows), is_wide_float(rows) ? ", or fp8" : "");
}

Status check_new_rows(const Append& what) {
  FLASHCORE_RETURN_IF_ERROR(check_types(what));
  FLASHCORE_RETURN_IF_ERROR(check_dtype("v_new", what.v_new, what.k_new.dtype));
  FLASHCORE_RETURN_IF_ERROR(check_cache_type("k", what.k.dtype, what.k_new.dtype));
  // fp8 rows are copied unconverted, so V's cache has their type.
  if (!is_wide_float(what.k_new.dtype)) {
    FLASHCORE_RETURN_IF_ERROR(check_cache_type("v", what.v.dtype, what.k_new.dtype));
  }
  if (what.cu_seqlens_new && !what.page_table && !what.kv_indices) {
    // Attention has no packed queries over a cache in one piece; append does not add that form.
    return invalid("cu_seqlens_new: is present, wanted it only with page_table or kv_indices");
  }
  FLASHCORE_RETURN_IF_ERROR(check_no_overlap("k", what.k));
  return check_no_overlap("v", what.v);
}

Status resolve_rope(const Append& what, Extents& extents, AppendProblem& p) {
  const int64_t head_dim = p.cache.head_dim_qk;
  p.interleaved = what.interleaved;
  if (what.rope_cos.has_value() != what.rope_sin.has_value()) {
    return invalid("{}: is missing, wanted both rope_cos and rope_sin or neither",
                   what.rope_cos ? "rope_sin" : "rope_cos");
  }
  if (!(what.rope_base >= 0) || std::isinf(what.rope_base)) {
    return invalid("rope_base: is {}, wanted 0 (off) or a positive finite number", what.rope_base);
  }
  if (!std::isfinite(what.rope_scale)) {
    return invalid("rope_scale: is {}, wanted a finite number", what.rope_scale);
  }
  if (what.rope_cos && what.rope_base > 0) {
    return invalid("rope_base: is {}, wanted 0 with rope_cos and rope_sin", what.rope_base);
  }
  if (what.rope_cos) {
    FLASHCORE_RETURN_IF_ERROR(check_shapes(what, 0, extents, "rope_cos", "q"));
    p.from_tables = true;
    p.positions = extents["positions"];
    p.rotary_dim = 2 * extents["rotary_dim / 2"];
    p.rope_cos = {0, used_stride(*what.rope_cos, 1), used_stride(*what.rope_cos, 0)};
    p.rope_sin = {0, used_stride(*what.rope_sin, 1), used_stride(*what.rope_sin, 0)};
    if (what.rotary_dim != 0 && what.rotary_dim != p.rotary_dim) {
      return invalid("rotary_dim: is {}, wanted 0 or {}, twice the columns of rope_cos",
                     what.rotary_dim, p.rotary_dim);
    }
  } else if (what.rope_base > 0) {
    p.rope_base = what.rope_base;
    p.rope_scale = what.rope_scale;
    p.rotary_dim = what.rotary_dim == 0 ? head_dim : what.rotary_dim;
  } else if (what.rotary_dim != 0) {
    return invalid("rotary_dim: is {}, wanted 0 without a rotation", what.rotary_dim);
  }
  if (p.rotary_dim < 0 || p.rotary_dim % 2 != 0 || p.rotary_dim > head_dim) {
    return invalid("rotary_dim: is {}, wanted an even number up to {}", p.rotary_dim, head_dim);
  }
  return {};
}

Status resolve_queries(const Append& what, Extents& extents, AppendProblem& p) {
  if (what.q.has_value() != what.q_out.has_value()) {
    return invalid("{}: is missing, wanted both q and q_out or neither", what.q ? "q_out" : "q");
  }
  if (!what.q) return {};
  if (p.rotary_dim == 0) return invalid("q: is present, wanted it only with a rotation");
  const bool packed = p.cache.packed;
  FLASHCORE_RETURN_IF_ERROR(check_dtype("q", *what.q, p.cache.dtype));
  FLASHCORE_RETURN_IF_ERROR(check_dtype("q_out", *what.q_out, p.cache.dtype));
  FLASHCORE_RETURN_IF_ERROR(check_shapes(what, packed ? kPacked : 0, extents, "q"));
  p.has_q = true;
  p.heads_q = extents["Hq"];
  p.q = row_strides(*what.q, packed);
  p.q_out = row_strides(*what.q_out, packed);
  return {};
}

}  // namespace

Result<AppendProblem> resolve(const Append& what) {
  FLASHCORE_RETURN_IF_ERROR(check_new_rows(what));
  AppendProblem p;
  const Result<ForwardProblem> cache = resolve(as_attention(what));
  if (!cache.ok()) return in_words_of_append(cache.status());
  p.cache = *cache;
  if (p.cache.heads_q != p.cache.heads_kv) {
    return invalid("k_new: shape {} has {} heads, wanted the {} of the cache",
                   shape_text(what.k_new), p.cache.heads_q, p.cache.heads_kv);
  }
  p.k_new = p.cache.q;
  p.v_new = p.cache.o;
  Extents extents;
  extents.set("B", p.cache.batch);
  extents.set("total", p.cache.total_q);
  extents.set("Snew", p.cache.seqlen_q);
  extents.set("Dqk", p.cache.head_dim_qk);
  FLASHCORE_RETURN_IF_ERROR(resolve_rope(what, extents, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_queries(what, extents, p));
  return p;
}

Arguments cache_arguments(const AppendArguments& args) {
  Arguments out;
  out.q = args.k_new;
  out.k = args.k;
  out.v = args.v;
  out.cu_seqlens_q = args.cu_seqlens_new;
  out.seqlens_q = args.seqlens_new;
  out.seqlens_kv = args.seqlens_kv;
  out.page_table = args.page_table;
  out.kv_indptr = args.kv_indptr;
  out.kv_indices = args.kv_indices;
  out.cache_leftpad = args.cache_leftpad;
  out.page_status = args.page_status;
  out.k_scale = args.k_scale;
  out.v_scale = args.v_scale;
  return out;
}

NewRows new_rows(const AppendProblem& problem, const AppendArguments& args, int64_t b) {
  const ForwardProblem& p = problem.cache;
  NewRows rows;
  rows.all = p.seqlen_q;
  if (p.packed) {
    rows.begin = args.cu_seqlens_new[p.cu_seqlens_q.at(b, 0)];
    rows.all = args.cu_seqlens_new[p.cu_seqlens_q.at(b + 1, 0)] - rows.begin;
  }
  rows.in_use = rows.all;
  if (p.seqlens_q.present) {
    rows.in_use = std::min<int64_t>(rows.in_use, args.seqlens_new[p.seqlens_q.at(b, 0)]);
  }
  rows.first_row = args.seqlens_kv[p.seqlens_kv.at(b, 0)];
  rows.position = rows.first_row;
  if (p.cache_leftpad.present) {
    rows.position -= args.cache_leftpad[p.cache_leftpad.at(b, 0)];
  }
  return rows;
}

namespace {

Status check_new_lengths(const AppendProblem& problem, const AppendArguments& args) {
  const ForwardProblem& p = problem.cache;
  int64_t before = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    if (p.packed) {
      const int64_t begin = args.cu_seqlens_new[p.cu_seqlens_q.at(b, 0)];
      const int64_t end = args.cu_seqlens_new[p.cu_seqlens_q.at(b + 1, 0)];
      if (begin != before || end < begin || end > p.total_q) {
        return invalid("cu_seqlens_new: entry {} is {} after {}, wanted a rise from 0 to {}", b + 1,
                       end, begin, p.total_q);
      }
      before = end;
    }
    if (p.seqlens_q.present) {
      const int32_t rows = args.seqlens_new[p.seqlens_q.at(b, 0)];
      if (rows < 0 || rows > p.seqlen_q) {
        return invalid("seqlens_new: entry {} is {}, wanted 0 to {}", b, rows, p.seqlen_q);
      }
    }
    int64_t room = p.seqlen_kv;
    if (p.paging.flat) {
      const int64_t first = args.kv_indptr[p.kv_indptr.at(b, 0)];
      const int64_t last = args.kv_indptr[p.kv_indptr.at(b + 1, 0)];
      if (first < 0 || last < first || last > p.paging.table_pages) {
        return invalid(
            "kv_indptr: entry {} is {} after {}, wanted {} to {}, the size of kv_indices", b + 1,
            last, first, std::max<int64_t>(first, 0), p.paging.table_pages);
      }
      room = (last - first) * p.paging.page_size;
    }
    const NewRows rows = new_rows(problem, args, b);
    if (rows.first_row < 0 || rows.first_row > room) {
      return invalid("seqlens_kv: entry {} is {}, wanted 0 to {}", b, rows.first_row, room);
    }
    if (rows.first_row + rows.in_use > room) {
      return invalid("k: sequence {} has {} rows in use and {} new ones, wanted at most {} in all",
                     b, rows.first_row, rows.in_use, room);
    }
    if (rows.in_use == 0) continue;
    if (rows.position < 0) {
      return invalid("cache_leftpad: entry {} is {}, wanted 0 to {}, the rows in use", b,
                     rows.first_row - rows.position, rows.first_row);
    }
    if (problem.from_tables && problem.rotary_dim > 0 &&
        rows.position + rows.in_use > problem.positions) {
      return invalid("rope_cos: has {} positions, wanted {} for sequence {}", problem.positions,
                     rows.position + rows.in_use, b);
    }
  }
  if (p.packed && before != p.total_q) {
    return invalid("cu_seqlens_new: last entry is {}, wanted {}, the rows of k_new", before,
                   p.total_q);
  }
  return {};
}

Status check_new_pages(const AppendProblem& problem, const AppendArguments& args) {
  const ForwardProblem& p = problem.cache;
  if (!p.paging.present || p.heads_kv == 0) return {};
  const Arguments cache = cache_arguments(args);
  for (int64_t b = 0; b < p.batch; ++b) {
    const NewRows rows = new_rows(problem, args, b);
    if (rows.in_use == 0) continue;
    const KeyPlaces places(p, cache, Sequence{}, b);
    const int64_t last = (rows.first_row + rows.in_use - 1) / p.paging.page_size;
    for (int64_t n = rows.first_row / p.paging.page_size; n <= last; ++n) {
      const int64_t page = places.stored_page(n);
      if (page >= 0 && page < p.paging.num_pages) continue;
      if (p.page_status.present) {
        *args.page_status = 1;
        return {};
      }
      return invalid("{}: page {} of sequence {} is {}, wanted 0 to {}",
                     p.paging.flat ? "kv_indices" : "page_table", n, b, page,
                     p.paging.num_pages - 1);
    }
  }
  return {};
}

}  // namespace

Status check_places(const AppendProblem& problem, const AppendArguments& args) {
  FLASHCORE_RETURN_IF_ERROR(check_new_lengths(problem, args));
  return check_new_pages(problem, args);
}

}  // namespace flashcore

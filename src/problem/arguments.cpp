// Checks of one run's data: pointers always, lengths where the host can read them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>

#include "problem/backward.hpp"
#include "problem/key_places.hpp"
#include "problem/lengths.hpp"
#include "problem/memory.hpp"
#include "problem/pointer.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"

namespace flashcore {

Status check_pointer(std::string_view name, const void* pointer, DType dtype, bool has_elements) {
  if (pointer == nullptr) {
    if (!has_elements) return {};
    return invalid("{}: pointer is null, wanted the data of a tensor of the problem", name);
  }
  const size_t alignment = size_of(dtype);  // a power of two
  if ((reinterpret_cast<uintptr_t>(pointer) & (alignment - 1)) != 0) {
    return invalid("{}: pointer {} is not aligned, wanted a multiple of {}, the size of {}", name,
                   pointer, alignment, to_string(dtype));
  }
  return {};
}

Status check_lengths_of(std::string_view name, const VectorInput& input, const int32_t* data,
                        int64_t count, int64_t largest) {
  if (!input.present) return {};
  for (int64_t b = 0; b < count; ++b) {
    const int32_t value = data[input.at(b, 0)];
    if (value < 0 || value > largest) {
      return invalid("{}: entry {} is {}, wanted 0 to {}", name, b, value, largest);
    }
  }
  return {};
}

Status check_cu_seqlens(std::string_view name, const VectorInput& input, const int32_t* data,
                        int64_t batch, int64_t total, int64_t longest) {
  int64_t before = data[input.at(0, 0)];
  if (before != 0) return invalid("{}: first entry is {}, wanted 0", name, before);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t next = data[input.at(b + 1, 0)];
    if (next < before || next - before > longest) {
      return invalid("{}: entry {} is {} after {}, wanted {} to {}", name, b + 1, next, before,
                     before, before + longest);
    }
    before = next;
  }
  if (before != total) {
    return invalid("{}: last entry is {}, wanted {}, the rows of the packed tensor", name, before,
                   total);
  }
  return {};
}

namespace {

bool has_queries(const ForwardProblem& p) {
  return p.heads_q > 0 && (p.packed ? p.total_q > 0 : p.batch > 0 && p.seqlen_q > 0);
}

bool has_keys(const ForwardProblem& p) {
  if (p.paging.present) return p.heads_kv > 0 && p.paging.num_pages > 0 && p.paging.page_size > 0;
  return p.heads_kv > 0 && (p.packed ? p.total_kv > 0 : p.batch > 0 && p.seqlen_kv > 0);
}

bool has_optional_inputs(const ForwardProblem& p) {
  return p.bias.present || p.mask.present || p.alibi_slopes.present || p.sinks.present ||
         p.q_scale.present || p.k_scale.present || p.v_scale.present || p.cu_seqlens_q.present ||
         p.cu_seqlens_kv.present || p.seqlens_q.present || p.seqlens_kv.present ||
         p.causal_offsets.present || p.dropout_state.present || p.paging.present ||
         p.cache_leftpad.present || p.page_status.present || p.tree_mask.present ||
         p.o_scale.present;
}

// Checks every pointer of a forward run.
Status check_each(const ForwardProblem& p, const Arguments& args) {
  const bool has_q = has_queries(p), has_kv = has_keys(p);
  const bool has_batch = p.batch > 0;
  const bool has_pairs = has_batch && p.heads_q > 0 && p.seqlen_q > 0 && p.seqlen_kv > 0;
  FLASHCORE_RETURN_IF_ERROR(check_pointer("q", args.q, p.dtype, has_q));
  FLASHCORE_RETURN_IF_ERROR(check_pointer("k", args.k, p.k_dtype, has_kv));
  FLASHCORE_RETURN_IF_ERROR(check_pointer("v", args.v, p.v_dtype, has_kv));
  FLASHCORE_RETURN_IF_ERROR(check_pointer("o", args.o, p.o_dtype, has_q));
  if (p.has_lse) FLASHCORE_RETURN_IF_ERROR(check_pointer("lse", args.lse, p.lse_dtype, has_q));
  for (const auto& [name, largest, pointer] :
       {std::tuple{"amax_o", &p.amax_o, args.amax_o}, {"amax_s", &p.amax_s, args.amax_s}}) {
    if (!largest->present) continue;
    const bool has_elements = largest->batches > 0 && largest->heads > 0;
    FLASHCORE_RETURN_IF_ERROR(check_pointer(name, pointer, DType::f32, has_elements));
  }
  if (p.bias.present) {
    FLASHCORE_RETURN_IF_ERROR(check_pointer("bias", args.bias, p.bias.dtype, has_pairs));
  }
  if (p.mask.present) {
    FLASHCORE_RETURN_IF_ERROR(check_pointer("mask", args.mask, p.mask.dtype, has_pairs));
  }
  if (p.dropout_state.present) {
    FLASHCORE_RETURN_IF_ERROR(check_pointer("dropout_state", args.dropout_state, DType::i64, true));
  }
  if (!has_optional_inputs(p)) return {};
  for (const auto& [name, present, pointer, needed] :
       {std::tuple{"alibi_slopes", p.alibi_slopes.present, args.alibi_slopes, has_q && has_batch},
        {"sinks", p.sinks.present, args.sinks, p.heads_q > 0},
        {"q_scale", p.q_scale.present, args.q_scale, has_q && has_batch},
        {"k_scale", p.k_scale.present, args.k_scale, has_kv && has_batch},
        {"v_scale", p.v_scale.present, args.v_scale, has_kv && has_batch},
        {"o_scale", p.o_scale.present, args.o_scale, has_q && has_batch}}) {
    if (present) FLASHCORE_RETURN_IF_ERROR(check_pointer(name, pointer, DType::f32, needed));
  }
  for (const auto& [name, present, pointer, needed] :
       {std::tuple{"cu_seqlens_q", p.cu_seqlens_q.present, args.cu_seqlens_q, true},
        {"cu_seqlens_kv", p.cu_seqlens_kv.present, args.cu_seqlens_kv, true},
        {"seqlens_q", p.seqlens_q.present, args.seqlens_q, has_batch},
        {"seqlens_kv", p.seqlens_kv.present, args.seqlens_kv, has_batch},
        {"causal_offsets", p.causal_offsets.present, args.causal_offsets, has_batch},
        {"page_table", p.paging.present && !p.paging.flat, args.page_table,
         has_batch && p.paging.table_pages > 0},
        {"kv_indptr", p.paging.flat, args.kv_indptr, true},
        {"kv_indices", p.paging.flat, args.kv_indices, p.paging.table_pages > 0},
        {"kv_last_page_len", p.kv_last_page_len.present, args.kv_last_page_len, has_batch},
        {"cache_leftpad", p.cache_leftpad.present, args.cache_leftpad, has_batch},
        {"tree_mask", p.tree_mask.present, args.tree_mask, has_q && p.tree_mask.words > 0},
        {"page_status", p.page_status.present, static_cast<const int32_t*>(args.page_status),
         true}}) {
    if (present) FLASHCORE_RETURN_IF_ERROR(check_pointer(name, pointer, DType::i32, needed));
  }
  return {};
}

Status check_outputs_apart(const ForwardProblem& p, const Arguments& args) {
  const std::array<NamedMemory, 5> outputs = all_written(p, args);
  for (size_t n = 0; n < outputs.size(); ++n) {
    FLASHCORE_RETURN_IF_ERROR(check_apart(outputs[n], std::span(outputs).subspan(n + 1)));
  }
  const std::array<NamedMemory, 3> rows = rows_read(p, args);
  for (const NamedMemory& output : outputs) {
    FLASHCORE_RETURN_IF_ERROR(check_apart(output, rows));
  }
  if (!has_optional_inputs(p)) return {};  // early exit: every run of a plan gets here
  const auto optional = optional_inputs(p, args);
  for (const NamedMemory& output : outputs) {
    FLASHCORE_RETURN_IF_ERROR(check_apart(output, optional));
  }
  return {};
}

// Returns the rows on an entry's pages in the flat form, ignoring seqlens_kv.
int64_t rows_listed(const ForwardProblem& p, const Arguments& args, int64_t b) {
  const int64_t pages =
      int64_t{args.kv_indptr[p.kv_indptr.at(b + 1, 0)]} - args.kv_indptr[p.kv_indptr.at(b, 0)];
  if (pages == 0 || !p.kv_last_page_len.present) return pages * p.paging.page_size;
  return (pages - 1) * p.paging.page_size + args.kv_last_page_len[p.kv_last_page_len.at(b, 0)];
}

Status check_flat_list(const ForwardProblem& p, const Arguments& args) {
  int64_t before = args.kv_indptr[p.kv_indptr.at(0, 0)];
  if (before != 0) return invalid("kv_indptr: first entry is {}, wanted 0", before);
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t next = args.kv_indptr[p.kv_indptr.at(b + 1, 0)];
    if (next < before || next > p.paging.table_pages) {
      return invalid("kv_indptr: entry {} is {} after {}, wanted {} to {}, the size of kv_indices",
                     b + 1, next, before, before, p.paging.table_pages);
    }
    if (next > before && p.kv_last_page_len.present) {
      const int32_t last = args.kv_last_page_len[p.kv_last_page_len.at(b, 0)];
      if (last < 1 || last > p.paging.page_size) {
        return invalid("kv_last_page_len: entry {} is {}, wanted 1 to {}, the size of a page", b,
                       last, p.paging.page_size);
      }
    }
    before = next;
    if (p.seqlens_kv.present) continue;  // the smaller number counts; seqlens_kv has its own check
    if (const int64_t rows = rows_listed(p, args, b); rows > p.seqlen_kv) {
      return invalid("kv_indptr: entry {} has {} rows, wanted at most {}, max_seqlen_kv", b, rows,
                     p.seqlen_kv);
    }
  }
  return {};
}

}  // namespace

Status check_pointers(const ForwardProblem& p, const Arguments& args) {
  FLASHCORE_RETURN_IF_ERROR(check_each(p, args));
  return check_outputs_apart(p, args);
}

Status check_pointers(const BackwardProblem& problem, const BackwardArguments& args) {
  const ForwardProblem& p = problem.forward;
  FLASHCORE_RETURN_IF_ERROR(check_each(p, args.forward));
  const bool has_q = has_queries(p), has_kv = has_keys(p), has_heads = p.heads_q > 0;
  const bool has_bias = problem.d_bias_elements > 0;
  const bool has_slopes = has_heads && problem.d_alibi_slopes_elements > 0;
  FLASHCORE_RETURN_IF_ERROR(check_pointer("d_o", args.d_o, p.o_dtype, has_q));
  for (const auto& [name, present, pointer, dtype, needed] :
       {std::tuple{"d_lse", problem.has_d_lse, args.d_lse, problem.d_lse_dtype, has_q},
        {"dq", true, static_cast<const void*>(args.dq), problem.dq_dtype, has_q},
        {"dk", true, static_cast<const void*>(args.dk), problem.dk_dtype, has_kv},
        {"dv", true, static_cast<const void*>(args.dv), problem.dv_dtype, has_kv},
        {"d_bias", problem.d_bias.present, static_cast<const void*>(args.d_bias),
         problem.d_bias.dtype, has_bias},
        {"d_sinks", problem.d_sinks.present, static_cast<const void*>(args.d_sinks),
         problem.d_sinks_dtype, has_heads},
        {"d_alibi_slopes", problem.d_alibi_slopes.present,
         static_cast<const void*>(args.d_alibi_slopes), problem.d_alibi_slopes_dtype,
         has_slopes}}) {
    if (present) FLASHCORE_RETURN_IF_ERROR(check_pointer(name, pointer, dtype, needed));
  }
  const std::array<NamedMemory, 6> outputs = gradients_written(problem, args);
  const std::array<NamedMemory, 2> inputs = gradients_read(problem, args);
  const std::array<NamedMemory, 3> results = rows_written(p, args.forward);
  const std::array<NamedMemory, 3> rows = rows_read(p, args.forward);
  const auto optional = optional_inputs(p, args.forward);
  for (size_t n = 0; n < outputs.size(); ++n) {
    for (const std::span<const NamedMemory> others :
         {std::span<const NamedMemory>(outputs).first(n), std::span<const NamedMemory>(inputs),
          std::span<const NamedMemory>(results), std::span<const NamedMemory>(rows),
          std::span<const NamedMemory>(optional)}) {
      FLASHCORE_RETURN_IF_ERROR(check_apart(outputs[n], others));
    }
  }
  return {};
}

Status check_lengths(const ForwardProblem& p, const Arguments& args) {
  if (p.packed) {
    FLASHCORE_RETURN_IF_ERROR(check_cu_seqlens("cu_seqlens_q", p.cu_seqlens_q, args.cu_seqlens_q,
                                               p.batch, p.total_q, p.seqlen_q));
  }
  if (p.packed_kv()) {
    FLASHCORE_RETURN_IF_ERROR(check_cu_seqlens("cu_seqlens_kv", p.cu_seqlens_kv, args.cu_seqlens_kv,
                                               p.batch, p.total_kv, p.seqlen_kv));
  }
  FLASHCORE_RETURN_IF_ERROR(
      check_lengths_of("seqlens_q", p.seqlens_q, args.seqlens_q, p.batch, p.seqlen_q));
  FLASHCORE_RETURN_IF_ERROR(
      check_lengths_of("cache_leftpad", p.cache_leftpad, args.cache_leftpad, p.batch, p.seqlen_kv));
  if (p.paging.flat) FLASHCORE_RETURN_IF_ERROR(check_flat_list(p, args));
  return check_lengths_of("seqlens_kv", p.seqlens_kv, args.seqlens_kv, p.batch, p.seqlen_kv);
}

Status check_o_scale(const ForwardProblem& p, const Arguments& args) {
  if (!p.o_scale.present || !has_queries(p)) return {};
  for (int64_t b = 0; b < (p.o_scale.batch == 0 ? std::min<int64_t>(p.batch, 1) : p.batch); ++b) {
    for (int64_t h = 0; h < (p.o_scale.head == 0 ? 1 : p.heads_q); ++h) {
      const float scale = args.o_scale[p.o_scale.at(b, h)];
      if (scale > 0 && scale <= std::numeric_limits<float>::max()) continue;
      return invalid("o_scale: element [{}, {}] is {}, wanted a positive finite number", b, h,
                     scale);
    }
  }
  return {};
}

PageRange pages_seen(const ForwardProblem& p, const Sequence& s) {
  const KeyRange keys = visible_keys(s, p.band, 0, s.len_q);
  if (!p.paging.present || keys.empty() || p.heads_q == 0) return {};
  const int64_t size = p.paging.page_size;
  return {(s.kv_begin + keys.begin) / size, (s.kv_begin + keys.end - 1) / size + 1};
}

Status check_pages(const ForwardProblem& p, const Arguments& args) {
  if (!p.paging.present) return {};
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = sequence_of(p, args, b);
    const PageRange seen = pages_seen(p, s);
    const KeyPlaces places(p, args, s, b);
    for (int64_t n = seen.begin; n < seen.end; ++n) {
      const int64_t page = places.stored_page(n);
      if (page >= 0 && page < p.paging.num_pages) continue;
      if (p.page_status.present) {
        *args.page_status = 1;
        return {};
      }
      return invalid("{}: page {} of entry {} is {}, wanted 0 to {}",
                     p.paging.flat ? "kv_indices" : "page_table", n, b, page,
                     p.paging.num_pages - 1);
    }
  }
  return {};
}

Sequence sequence_of(const ForwardProblem& p, const Arguments& args, int64_t b) {
  Sequence s;
  s.len_q = s.rows_q = p.seqlen_q;
  s.len_kv = p.seqlen_kv;
  if (p.packed) {
    s.q_begin = args.cu_seqlens_q[p.cu_seqlens_q.at(b, 0)];
    s.len_q = s.rows_q = args.cu_seqlens_q[p.cu_seqlens_q.at(b + 1, 0)] - s.q_begin;
  }
  if (p.packed_kv()) {
    s.kv_begin = args.cu_seqlens_kv[p.cu_seqlens_kv.at(b, 0)];
    s.len_kv = args.cu_seqlens_kv[p.cu_seqlens_kv.at(b + 1, 0)] - s.kv_begin;
  }
  if (p.paging.flat) s.len_kv = rows_listed(p, args, b);
  // Never more rows in use than the entry has.
  if (p.seqlens_q.present) {
    s.len_q = std::min<int64_t>(s.len_q, args.seqlens_q[p.seqlens_q.at(b, 0)]);
  }
  if (p.seqlens_kv.present) {
    s.len_kv = std::min<int64_t>(s.len_kv, args.seqlens_kv[p.seqlens_kv.at(b, 0)]);
  }
  if (p.cache_leftpad.present) {
    const int64_t padding = args.cache_leftpad[p.cache_leftpad.at(b, 0)];
    s.kv_begin += padding;
    s.len_kv = std::max<int64_t>(0, s.len_kv - padding);
  }
  switch (p.alignment) {
    case Alignment::top_left:
      s.offset = 0;
      break;
    case Alignment::bottom_right:
      s.offset = s.len_kv - s.len_q;
      break;
    case Alignment::given:
      s.offset = p.causal_offsets.present ? args.causal_offsets[p.causal_offsets.at(b, 0)]
                                          : p.causal_offset;
      break;
  }
  return s;
}

}  // namespace flashcore

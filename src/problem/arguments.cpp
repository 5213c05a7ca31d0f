// Checks of one run's data: pointers always, lengths where the host can read them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "problem/backward.hpp"
#include "problem/entries.hpp"
#include "problem/key_places.hpp"
#include "problem/lengths.hpp"
#include "problem/memory.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"

namespace flashcore {

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

// The tensors that a run has, with their bytes.
class RunTensors {
 public:
  std::span<const NamedMemory> all() const { return std::span(all_).first(count_); }

  template <class T>
  void add(std::string_view name, T* data, DType dtype, std::initializer_list<Dimension> shape) {
    all_[count_++] = {.name = name,
                      .data = data,
                      .dtype = dtype,
                      .bytes = footprint(data, size_of(dtype), {shape.begin(), shape.size()}),
                      .is_output = !std::is_const_v<T>};
  }

 private:
  std::array<NamedMemory, 32> all_;  // more than either pass has
  size_t count_ = 0;
};

struct Rows {
  int64_t lead, heads, rows;
  bool empty() const { return lead == 0 || heads == 0 || rows == 0; }
};
Rows query_rows(const ForwardProblem& p) {
  return {p.packed ? 1 : p.batch, p.heads_q, p.packed ? p.total_q : p.seqlen_q};
}
Rows key_rows(const ForwardProblem& p) { return {lead_of_keys(p), p.heads_kv, rows_of_keys(p)}; }

template <class T>
void add_rows(RunTensors& all, std::string_view name, T* data, DType dtype, const Rows& rows,
              const RowStrides& stride, int64_t width) {
  all.add(
      name, data, dtype,
      {{rows.lead, stride.batch}, {rows.heads, stride.head}, {rows.rows, stride.row}, {width, 1}});
}

template <class T>
void add_pairs(RunTensors& all, std::string_view name, T* data, const PairInput& input,
               const int64_t (&extents)[4]) {
  if (!input.present) return;
  all.add(name, data, input.dtype,
          {{extents[0], input.batch},
           {extents[1], input.head},
           {extents[2], input.query},
           {extents[3], input.key}});
}

template <class T>
void add_vector(RunTensors& all, std::string_view name, T* data, DType dtype,
                const VectorInput& input, int64_t batch, int64_t heads) {
  if (input.present) all.add(name, data, dtype, {{batch, input.batch}, {heads, input.head}});
}

void add_lengths(RunTensors& all, const ForwardProblem& p, const Arguments& args) {
  for (const auto& [name, data, input, count] :
       {std::tuple{"cu_seqlens_q", args.cu_seqlens_q, &p.cu_seqlens_q, p.batch + 1},
        {"cu_seqlens_kv", args.cu_seqlens_kv, &p.cu_seqlens_kv, p.batch + 1},
        {"seqlens_q", args.seqlens_q, &p.seqlens_q, p.batch},
        {"seqlens_kv", args.seqlens_kv, &p.seqlens_kv, p.batch},
        {"causal_offsets", args.causal_offsets, &p.causal_offsets, p.batch},
        {"kv_indptr", args.kv_indptr, &p.kv_indptr, p.batch + 1},
        {"kv_last_page_len", args.kv_last_page_len, &p.kv_last_page_len, p.batch},
        {"cache_leftpad", args.cache_leftpad, &p.cache_leftpad, p.batch}}) {
    add_vector(all, name, data, DType::i32, *input, count, 1);
  }
  const Paging& paging = p.paging;
  if (paging.flat) {
    all.add("kv_indices", args.kv_indices, DType::i32, {{paging.table_pages, paging.table_page}});
  } else if (paging.present) {
    all.add("page_table", args.page_table, DType::i32,
            {{p.batch, paging.table_batch}, {paging.table_pages, paging.table_page}});
  }
}

// What both passes read besides O and LSE.
void add_inputs(RunTensors& all, const ForwardProblem& p, const Arguments& args) {
  const Rows queries = query_rows(p), keys = key_rows(p);
  add_rows(all, "q", args.q, p.dtype, queries, p.q, p.head_dim_qk);
  add_rows(all, "k", args.k, p.k_dtype, keys, p.k, p.head_dim_qk);
  if (p.v_transposed) {
    const int64_t columns = p.seqlen_kv > 0 ? p.v_columns : 0;
    add_rows(all, "v", args.v, p.v_dtype, {p.batch, p.heads_kv, p.head_dim_v}, p.v, columns);
  } else {
    add_rows(all, "v", args.v, p.v_dtype, keys, p.v, p.head_dim_v);
  }
  const int64_t pairs[4] = {p.batch, p.heads_q, p.seqlen_q, p.seqlen_kv};
  add_pairs(all, "bias", args.bias, p.bias, pairs);
  add_pairs(all, "mask", args.mask, p.mask, pairs);
  for (const auto& [name, data, input] :
       {std::tuple{"alibi_slopes", args.alibi_slopes, &p.alibi_slopes},
        {"q_scale", args.q_scale, &p.q_scale},
        {"o_scale", args.o_scale, &p.o_scale}}) {
    add_vector(all, name, data, DType::f32, *input, p.batch, p.heads_q);
  }
  add_vector(all, "sinks", args.sinks, DType::f32, p.sinks, 1, p.heads_q);
  const int64_t scaled = p.paging.present ? p.paging.page_size : p.seqlen_kv;
  for (const auto& [name, data, scale] :
       {std::tuple{"k_scale", args.k_scale, &p.k_scale}, {"v_scale", args.v_scale, &p.v_scale}}) {
    if (!scale->present) continue;
    const int64_t blocks = (scaled + p.kv_scale_block - 1) / p.kv_scale_block;
    all.add(name, data, DType::f32,
            {{p.paging.present ? p.paging.num_pages : p.batch, scale->batch},
             {p.heads_kv, scale->head},
             {blocks, scale->block}});
  }
  add_lengths(all, p, args);
  add_vector(all, "dropout_state", args.dropout_state, DType::i64, p.dropout_state, 2, 1);
  if (p.tree_mask.present) {
    all.add("tree_mask", args.tree_mask, DType::i32,
            {{queries.lead, p.tree_mask.batch},
             {queries.rows, p.tree_mask.query},
             {p.tree_mask.words, p.tree_mask.word}});
  }
}

template <class T>
void add_results(RunTensors& all, const ForwardProblem& p, T* o, T* lse) {
  add_rows(all, "o", o, p.o_dtype, query_rows(p), p.o, p.head_dim_v);
  if (p.has_lse) add_rows(all, "lse", lse, p.lse_dtype, query_rows(p), p.lse, 1);
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
        return invalid("kv_last_page_len: entry {} is {}, wanted 1 to {}, the page size", b, last,
                       p.paging.page_size);
      }
    }
    before = next;
    if (p.seqlens_kv.present) continue;  // the smaller number counts; seqlens_kv has its own check
    if (const int64_t rows = rows_listed(p, args, b); rows > p.seqlen_kv) {
      return invalid("kv_indptr: sequence {} has {} rows, wanted at most {}, max_seqlen_kv", b,
                     rows, p.seqlen_kv);
    }
  }
  return {};
}

}  // namespace

Status check_pointers(const ForwardProblem& p, const Arguments& args) {
  RunTensors all;
  add_results(all, p, args.o, args.lse);
  add_vector(all, "page_status", args.page_status, DType::i32, p.page_status, 1, 1);
  for (const auto& [name, data, largest] :
       {std::tuple{"amax_o", args.amax_o, &p.amax_o}, {"amax_s", args.amax_s, &p.amax_s}}) {
    if (!largest->present) continue;
    all.add(name, data, DType::f32,
            {{largest->batches, largest->batch}, {largest->heads, largest->head}});
  }
  add_inputs(all, p, args);
  return check_memory(all.all());
}

Status check_pointers(const BackwardProblem& problem, const BackwardArguments& args) {
  const ForwardProblem& p = problem.forward;
  const Rows queries = query_rows(p), keys = key_rows(p);
  RunTensors all;
  // Sums are written even if there is nothing to add.
  const int64_t slope_batches = p.heads_q > 0 ? problem.d_alibi_slopes_elements / p.heads_q : 0;
  add_vector(all, "d_alibi_slopes", args.d_alibi_slopes, problem.d_alibi_slopes_dtype,
             problem.d_alibi_slopes, slope_batches, p.heads_q);
  add_vector(all, "d_sinks", args.d_sinks, problem.d_sinks_dtype, problem.d_sinks, 1, p.heads_q);
  add_pairs(all, "d_bias", args.d_bias, problem.d_bias, problem.d_bias_extents);
  add_rows(all, "dv", args.dv, problem.dv_dtype, keys, problem.dv, p.head_dim_v);
  add_rows(all, "dk", args.dk, problem.dk_dtype, keys, problem.dk, p.head_dim_qk);
  add_rows(all, "dq", args.dq, problem.dq_dtype, queries, problem.dq, p.head_dim_qk);
  add_rows(all, "d_o", args.d_o, p.o_dtype, queries, problem.d_o, p.head_dim_v);
  if (problem.has_d_lse) {
    add_rows(all, "d_lse", args.d_lse, problem.d_lse_dtype, queries, problem.d_lse, 1);
  }
  add_results<const void>(all, p, args.forward.o, args.forward.lse);
  add_inputs(all, p, args.forward);
  return check_memory(all.all());
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
  if (!p.o_scale.present || query_rows(p).empty()) return {};
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
      return invalid("{}: page {} of sequence {} is {}, wanted 0 to {}",
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

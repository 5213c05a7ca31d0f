// Checks of one run's numbers, where the host can read them.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "problem/key_places.hpp"
#include "problem/lengths.hpp"
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
  const int64_t rows = p.packed ? p.total_q : p.seqlen_q;
  if (!p.o_scale.present || p.batch == 0 || p.heads_q == 0 || rows == 0) return {};
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

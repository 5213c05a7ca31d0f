// Checks of one run's data: pointers always, lengths where the host can read them.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <tuple>
#include <utility>

#include "problem/problem.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

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

// The bytes [first, last) that a tensor lies in; dense: all of them are its own.
struct Footprint {
  uintptr_t first = 0;
  uintptr_t last = 0;
  bool dense = false;

  bool empty() const { return first == last; }
  bool contains(uintptr_t byte) const { return byte >= first && byte < last; }
};

struct Dimension {
  int64_t extent;
  int64_t stride;  // in elements; 0 where broadcast
};

Footprint footprint(const void* data, size_t element_size, std::initializer_list<Dimension> shape) {
  int64_t lowest = 0, highest = 0;
  uint64_t elements = 1;  // at addresses of their own; wraps for absurd broadcasts only
  for (const Dimension& dimension : shape) {
    if (dimension.extent == 0) return {};
    (dimension.stride < 0 ? lowest : highest) += (dimension.extent - 1) * dimension.stride;
    if (dimension.stride != 0) elements *= static_cast<uint64_t>(dimension.extent);
  }
  const auto origin = reinterpret_cast<uintptr_t>(data);
  return {.first = origin + static_cast<uintptr_t>(lowest) * element_size,
          .last = origin + (static_cast<uintptr_t>(highest) + 1) * element_size,
          .dense = static_cast<uint64_t>(highest - lowest) + 1 == elements};
}

// True when two tensors share bytes for sure: tensors that are woven into each other (rows of a
// fused buffer) are not told from those that collide, and get the benefit of the doubt.
bool share_memory(const Footprint& a, const Footprint& b) {
  if (a.empty() || b.empty() || a.first >= b.last || b.first >= a.last) return false;
  if (a.first == b.first || a.last == b.last || (a.dense && b.dense)) return true;
  return (a.dense && (a.contains(b.first) || a.contains(b.last - 1))) ||
         (b.dense && (b.contains(a.first) || b.contains(a.last - 1)));
}

Footprint rows_footprint(const ForwardProblem& p, const RowStrides& strides, const void* data,
                         DType dtype, bool of_queries, int64_t width) {
  const int64_t heads = of_queries ? p.heads_q : p.heads_kv;
  const int64_t packed_rows = of_queries ? p.total_q : p.total_kv;
  const int64_t rows = p.packed ? packed_rows : of_queries ? p.seqlen_q : p.seqlen_kv;
  return footprint(data, size_of(dtype),
                   {{p.packed ? 1 : p.batch, strides.batch},
                    {heads, strides.head},
                    {rows, strides.row},
                    {width, 1}});
}

Footprint pair_footprint(const ForwardProblem& p, const PairInput& input, const void* data) {
  if (!input.present) return {};
  return footprint(data, size_of(input.dtype),
                   {{p.batch, input.batch},
                    {p.heads_q, input.head},
                    {p.seqlen_q, input.query},
                    {p.seqlen_kv, input.key}});
}

Footprint vector_footprint(const VectorInput& input, const void* data, int64_t batch,
                           int64_t heads) {
  if (!input.present) return {};
  return footprint(data, 4, {{batch, input.batch}, {heads, input.head}});
}

Footprint scale_footprint(const ForwardProblem& p, const ScaleInput& input, const void* data) {
  if (!input.present) return {};
  const int64_t blocks = (p.seqlen_kv + p.kv_scale_block - 1) / p.kv_scale_block;
  return footprint(data, 4,
                   {{p.batch, input.batch}, {p.heads_kv, input.head}, {blocks, input.block}});
}

bool has_optional_inputs(const ForwardProblem& p) {
  return p.bias.present || p.mask.present || p.alibi_slopes.present || p.sinks.present ||
         p.q_scale.present || p.k_scale.present || p.v_scale.present || p.cu_seqlens_q.present ||
         p.cu_seqlens_kv.present || p.seqlens_q.present || p.seqlens_kv.present ||
         p.causal_offsets.present;
}

Status check_outputs_apart(const ForwardProblem& p, const Arguments& args) {
  const Footprint o = rows_footprint(p, p.o, args.o, p.o_dtype, true, p.head_dim_v);
  const Footprint lse =
      p.has_lse ? rows_footprint(p, p.lse, args.lse, p.lse_dtype, true, 1) : Footprint{};
  const auto vector = [&p](const VectorInput& input, const void* data) {
    return vector_footprint(input, data, p.batch, p.heads_q);
  };
  const auto collides = [](const char* output, const void* data, const char* other) {
    return invalid("{}: pointer {} overlaps the memory of {}, wanted memory of its own", output,
                   data, other);
  };
  if (share_memory(o, lse)) return collides("o", args.o, "lse");
  for (const auto& [name, input] :
       {std::pair{"q", rows_footprint(p, p.q, args.q, p.dtype, true, p.head_dim_qk)},
        {"k", rows_footprint(p, p.k, args.k, p.dtype, false, p.head_dim_qk)},
        {"v", rows_footprint(p, p.v, args.v, p.dtype, false, p.head_dim_v)}}) {
    if (share_memory(o, input)) return collides("o", args.o, name);
    if (share_memory(lse, input)) return collides("lse", args.lse, name);
  }
  if (!has_optional_inputs(p)) return {};  // every run of a plan comes by here
  for (const auto& [name, input] :
       {std::pair{"bias", pair_footprint(p, p.bias, args.bias)},
        {"mask", pair_footprint(p, p.mask, args.mask)},
        {"alibi_slopes", vector(p.alibi_slopes, args.alibi_slopes)},
        {"sinks", vector(p.sinks, args.sinks)},
        {"q_scale", vector(p.q_scale, args.q_scale)},
        {"k_scale", scale_footprint(p, p.k_scale, args.k_scale)},
        {"v_scale", scale_footprint(p, p.v_scale, args.v_scale)},
        {"cu_seqlens_q", vector_footprint(p.cu_seqlens_q, args.cu_seqlens_q, p.batch + 1, 1)},
        {"cu_seqlens_kv", vector_footprint(p.cu_seqlens_kv, args.cu_seqlens_kv, p.batch + 1, 1)},
        {"seqlens_q", vector_footprint(p.seqlens_q, args.seqlens_q, p.batch, 1)},
        {"seqlens_kv", vector_footprint(p.seqlens_kv, args.seqlens_kv, p.batch, 1)},
        {"causal_offsets", vector_footprint(p.causal_offsets, args.causal_offsets, p.batch, 1)}}) {
    if (share_memory(o, input)) return collides("o", args.o, name);
    if (share_memory(lse, input)) return collides("lse", args.lse, name);
  }
  return {};
}

}  // namespace

Status check_pointers(const ForwardProblem& p, const Arguments& args) {
  const bool has_q = p.heads_q > 0 && (p.packed ? p.total_q > 0 : p.batch > 0 && p.seqlen_q > 0);
  const bool has_kv =
      p.heads_kv > 0 && (p.packed ? p.total_kv > 0 : p.batch > 0 && p.seqlen_kv > 0);
  const bool has_batch = p.batch > 0;
  const bool has_pairs = has_batch && p.heads_q > 0 && p.seqlen_q > 0 && p.seqlen_kv > 0;
  FLASHCORE_RETURN_IF_ERROR(check_pointer("q", args.q, p.dtype, has_q));
  FLASHCORE_RETURN_IF_ERROR(check_pointer("k", args.k, p.dtype, has_kv));
  FLASHCORE_RETURN_IF_ERROR(check_pointer("v", args.v, p.dtype, has_kv));
  FLASHCORE_RETURN_IF_ERROR(check_pointer("o", args.o, p.o_dtype, has_q));
  if (p.has_lse) FLASHCORE_RETURN_IF_ERROR(check_pointer("lse", args.lse, p.lse_dtype, has_q));
  if (p.bias.present) {
    FLASHCORE_RETURN_IF_ERROR(check_pointer("bias", args.bias, p.bias.dtype, has_pairs));
  }
  if (p.mask.present) {
    FLASHCORE_RETURN_IF_ERROR(check_pointer("mask", args.mask, p.mask.dtype, has_pairs));
  }
  if (!has_optional_inputs(p)) return check_outputs_apart(p, args);
  for (const auto& [name, present, pointer, needed] :
       {std::tuple{"alibi_slopes", p.alibi_slopes.present, args.alibi_slopes, has_q && has_batch},
        {"sinks", p.sinks.present, args.sinks, p.heads_q > 0},
        {"q_scale", p.q_scale.present, args.q_scale, has_q && has_batch},
        {"k_scale", p.k_scale.present, args.k_scale, has_kv && has_batch},
        {"v_scale", p.v_scale.present, args.v_scale, has_kv && has_batch}}) {
    if (present) FLASHCORE_RETURN_IF_ERROR(check_pointer(name, pointer, DType::f32, needed));
  }
  for (const auto& [name, present, pointer, needed] :
       {std::tuple{"cu_seqlens_q", p.cu_seqlens_q.present, args.cu_seqlens_q, true},
        {"cu_seqlens_kv", p.cu_seqlens_kv.present, args.cu_seqlens_kv, true},
        {"seqlens_q", p.seqlens_q.present, args.seqlens_q, has_batch},
        {"seqlens_kv", p.seqlens_kv.present, args.seqlens_kv, has_batch},
        {"causal_offsets", p.causal_offsets.present, args.causal_offsets, has_batch}}) {
    if (present) FLASHCORE_RETURN_IF_ERROR(check_pointer(name, pointer, DType::i32, needed));
  }
  return check_outputs_apart(p, args);
}

Status check_lengths(const ForwardProblem& p, const Arguments& args) {
  if (p.packed) {
    FLASHCORE_RETURN_IF_ERROR(check_cu_seqlens("cu_seqlens_q", p.cu_seqlens_q, args.cu_seqlens_q,
                                               p.batch, p.total_q, p.seqlen_q));
    FLASHCORE_RETURN_IF_ERROR(check_cu_seqlens("cu_seqlens_kv", p.cu_seqlens_kv, args.cu_seqlens_kv,
                                               p.batch, p.total_kv, p.seqlen_kv));
  }
  FLASHCORE_RETURN_IF_ERROR(
      check_lengths_of("seqlens_q", p.seqlens_q, args.seqlens_q, p.batch, p.seqlen_q));
  return check_lengths_of("seqlens_kv", p.seqlens_kv, args.seqlens_kv, p.batch, p.seqlen_kv);
}

Sequence sequence_of(const ForwardProblem& p, const Arguments& args, int64_t b) {
  Sequence s;
  s.len_q = s.rows_q = p.seqlen_q;
  s.len_kv = p.seqlen_kv;
  if (p.packed) {
    s.q_begin = args.cu_seqlens_q[p.cu_seqlens_q.at(b, 0)];
    s.kv_begin = args.cu_seqlens_kv[p.cu_seqlens_kv.at(b, 0)];
    s.len_q = s.rows_q = args.cu_seqlens_q[p.cu_seqlens_q.at(b + 1, 0)] - s.q_begin;
    s.len_kv = args.cu_seqlens_kv[p.cu_seqlens_kv.at(b + 1, 0)] - s.kv_begin;
  }
  // In use: never more than the entry has.
  if (p.seqlens_q.present) {
    s.len_q = std::min<int64_t>(s.len_q, args.seqlens_q[p.seqlens_q.at(b, 0)]);
  }
  if (p.seqlens_kv.present) {
    s.len_kv = std::min<int64_t>(s.len_kv, args.seqlens_kv[p.seqlens_kv.at(b, 0)]);
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

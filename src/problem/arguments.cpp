// Checks of one run's data: pointers always, lengths where the host can read them.
#include <cstdint>
#include <string_view>
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
  const size_t alignment = size_of(dtype);
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
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
  for (const auto& [name, input] : {std::pair<const char*, const void*>{"q", args.q},
                                    {"k", args.k},
                                    {"v", args.v},
                                    {"bias", args.bias},
                                    {"mask", args.mask},
                                    {"lse", args.lse}}) {
    if (args.o != nullptr && input == args.o) {
      return invalid("o: pointer {} is that of {} too, wanted memory of its own", args.o, name);
    }
  }
  return {};
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

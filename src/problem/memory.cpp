#include "problem/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {

Footprint footprint(const void* data, size_t element_size, std::span<const Dimension> shape) {
  Footprint out{.element_size = static_cast<int64_t>(element_size)};
  int64_t lowest = 0, highest = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto [extent, stride] = shape[d];
    if (extent == 0) return {};
    (stride < 0 ? lowest : highest) += (extent - 1) * stride;
    out.shape[d] = shape[d];
  }
  const auto origin = reinterpret_cast<uintptr_t>(data);
  out.first = origin + static_cast<uintptr_t>(lowest) * element_size;
  out.last = origin + (static_cast<uintptr_t>(highest) + 1) * element_size;
  return out;
}

Footprint footprint(const TensorDesc& tensor, const void* data) {
  std::array<Dimension, TensorDesc::kMaxRank> shape{};
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool used = d < static_cast<size_t>(tensor.rank);
    shape[d] = {used ? tensor.shape[d] : 1, used ? used_stride(tensor, d) : 0};
  }
  return footprint(data, size_of(tensor.dtype), shape);
}

Status check_apart(const NamedMemory& output, std::span<const NamedMemory> others) {
  for (const NamedMemory& other : others) {
    if (!share_memory(output.bytes, other.bytes)) continue;
    return invalid("{}: pointer {} overlaps the memory of {}, wanted memory of its own",
                   output.name, output.data, other.name);
  }
  return {};
}

namespace {

Footprint footprint(const void* data, size_t element_size, std::initializer_list<Dimension> shape) {
  return flashcore::footprint(data, element_size, std::span(shape.begin(), shape.size()));
}

Footprint rows_footprint(const ForwardProblem& p, const RowStrides& strides, const void* data,
                         DType dtype, bool of_queries, int64_t width) {
  const int64_t heads = of_queries ? p.heads_q : p.heads_kv;
  if (!of_queries && p.paging.present) {
    return footprint(data, size_of(dtype),
                     {{p.paging.num_pages, strides.batch},
                      {heads, strides.head},
                      {p.paging.page_size, strides.row},
                      {width, 1}});
  }
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

Footprint vector_footprint(const VectorInput& input, const void* data, int64_t batch, int64_t heads,
                           size_t element_size = sizeof(float)) {
  if (!input.present) return {};
  return footprint(data, element_size, {{batch, input.batch}, {heads, input.head}});
}

Footprint scale_footprint(const ForwardProblem& p, const ScaleInput& input, const void* data) {
  if (!input.present) return {};
  const int64_t rows = p.paging.present ? p.paging.page_size : p.seqlen_kv;
  const int64_t blocks = (rows + p.kv_scale_block - 1) / p.kv_scale_block;
  return footprint(data, sizeof(float),
                   {{p.paging.present ? p.paging.num_pages : p.batch, input.batch},
                    {p.heads_kv, input.head},
                    {blocks, input.block}});
}

}  // namespace

namespace {

// Sums of n[i] * step[i], with each n[i] from 0 to a maximum of its own.
class Sums {
 public:
  // The steps, in bytes, are those up from an element of `a` and those down from one of `b`.
  Sums(const Footprint& a, const Footprint& b) {
    for (const Footprint* const tensor : {&a, &b}) {
      for (const auto& [extent, stride] : tensor->shape) {
        if (extent <= 1 || stride == 0) continue;
        steps_[count_++] = {std::abs(stride) * tensor->element_size, extent - 1};
      }
    }
    std::sort(steps_.begin(), steps_.begin() + count_,
              [](const Step& x, const Step& y) { return x.size < y.size; });
    size_t last = 0;  // merges equal steps
    for (size_t n = 1; n < count_; ++n) {
      if (steps_[n].size == steps_[last].size) {
        steps_[last].most += steps_[n].most;
      } else {
        steps_[++last] = steps_[n];
      }
    }
    count_ = std::min(count_, last + 1);
    for (size_t n = 0; n < count_; ++n) reach_[n + 1] = reach_[n] + steps_[n].size * steps_[n].most;
  }

  // Returns whether some sum lies in [low, high]; also true if the search takes too many steps.
  bool any_in(int64_t low, int64_t high) {
    // The sums of these smallest steps leave no gap that could contain [low, high].
    gapless_ = 0;
    while (gapless_ < count_ && steps_[gapless_].size <= reach_[gapless_] + high - low + 1) {
      ++gapless_;
    }
    return any_in(count_, low, high);
  }

 private:
  struct Step {
    int64_t size, most;
  };

  // any_in() for the sums of the first `count` steps.
  bool any_in(size_t count, int64_t low, int64_t high) {
    if (high < 0 || low > reach_[count]) return false;
    if (count <= gapless_) return true;
    const auto& [size, most] = steps_[count - 1];
    const int64_t missing = std::max<int64_t>(0, low - reach_[count - 1]);
    for (int64_t n = (missing + size - 1) / size; n <= std::min(most, high / size); ++n) {
      if (tries_-- == 0 || any_in(count - 1, low - n * size, high - n * size)) return true;
    }
    return false;
  }

  std::array<Step, 2 * TensorDesc::kMaxRank> steps_{};         // ascending
  std::array<int64_t, 2 * TensorDesc::kMaxRank + 1> reach_{};  // [n]: largest sum of the first n
  size_t count_ = 0, gapless_ = 0;
  int64_t tries_ = 1 << 14;  // views of one buffer need few
};

}  // namespace

// Starts from the distance between a's first element and b's last one, and steps up in a and down in b.
// If the steps sum to that distance, up to less than one element, the two elements reached share a byte.
bool share_memory(const Footprint& a, const Footprint& b) {
  if (a.empty() || b.empty() || a.first >= b.last || b.first >= a.last) return false;
  const auto end = static_cast<int64_t>(b.last - a.first);
  return Sums(a, b).any_in(end - a.element_size - b.element_size + 1, end - 1);
}

std::array<NamedMemory, 3> rows_written(const ForwardProblem& p, const Arguments& args) {
  return {
      {{"o", args.o, rows_footprint(p, p.o, args.o, p.o_dtype, true, p.head_dim_v)},
       {"lse", args.lse,
        p.has_lse ? rows_footprint(p, p.lse, args.lse, p.lse_dtype, true, 1) : Footprint{}},
       {"page_status", args.page_status, vector_footprint(p.page_status, args.page_status, 1, 1)}}};
}

std::array<NamedMemory, 5> all_written(const ForwardProblem& p, const Arguments& args) {
  const auto largest = [](const LargestOutput& output, const void* data) {
    if (!output.present) return Footprint{};
    return footprint(data, sizeof(float),
                     {{output.batches, output.batch}, {output.heads, output.head}});
  };
  const auto [o, lse, page_status] = rows_written(p, args);
  return {{o,
           lse,
           page_status,
           {"amax_o", args.amax_o, largest(p.amax_o, args.amax_o)},
           {"amax_s", args.amax_s, largest(p.amax_s, args.amax_s)}}};
}

std::array<NamedMemory, 3> rows_read(const ForwardProblem& p, const Arguments& args) {
  return {{{"q", args.q, rows_footprint(p, p.q, args.q, p.dtype, true, p.head_dim_qk)},
           {"k", args.k, rows_footprint(p, p.k, args.k, p.k_dtype, false, p.head_dim_qk)},
           {"v", args.v,
            p.v_transposed ? footprint(args.v, size_of(p.v_dtype),
                                       {{p.batch, p.v.batch},
                                        {p.heads_kv, p.v.head},
                                        {p.head_dim_v, p.v.row},
                                        {p.seqlen_kv > 0 ? p.v_columns : 0, 1}})
                           : rows_footprint(p, p.v, args.v, p.v_dtype, false, p.head_dim_v)}}};
}

std::array<NamedMemory, 20> optional_inputs(const ForwardProblem& p, const Arguments& args) {
  const auto vector = [&p](const VectorInput& input, const void* data) {
    return vector_footprint(input, data, p.batch, p.heads_q);
  };
  const auto lengths = [](const VectorInput& input, const void* data, int64_t count) {
    return vector_footprint(input, data, count, 1);
  };
  return {{
      {"bias", args.bias, pair_footprint(p, p.bias, args.bias)},
      {"mask", args.mask, pair_footprint(p, p.mask, args.mask)},
      {"alibi_slopes", args.alibi_slopes, vector(p.alibi_slopes, args.alibi_slopes)},
      {"sinks", args.sinks, vector(p.sinks, args.sinks)},
      {"q_scale", args.q_scale, vector(p.q_scale, args.q_scale)},
      {"k_scale", args.k_scale, scale_footprint(p, p.k_scale, args.k_scale)},
      {"v_scale", args.v_scale, scale_footprint(p, p.v_scale, args.v_scale)},
      {"cu_seqlens_q", args.cu_seqlens_q, lengths(p.cu_seqlens_q, args.cu_seqlens_q, p.batch + 1)},
      {"cu_seqlens_kv", args.cu_seqlens_kv,
       lengths(p.cu_seqlens_kv, args.cu_seqlens_kv, p.batch + 1)},
      {"seqlens_q", args.seqlens_q, lengths(p.seqlens_q, args.seqlens_q, p.batch)},
      {"seqlens_kv", args.seqlens_kv, lengths(p.seqlens_kv, args.seqlens_kv, p.batch)},
      {"causal_offsets", args.causal_offsets,
       lengths(p.causal_offsets, args.causal_offsets, p.batch)},
      {"dropout_state", args.dropout_state,
       vector_footprint(p.dropout_state, args.dropout_state, 2, 1, sizeof(int64_t))},
      {"page_table", args.page_table,
       p.paging.present && !p.paging.flat ? footprint(args.page_table, sizeof(int32_t),
                                                      {{p.batch, p.paging.table_batch},
                                                       {p.paging.table_pages, p.paging.table_page}})
                                          : Footprint{}},
      {"kv_indptr", args.kv_indptr, lengths(p.kv_indptr, args.kv_indptr, p.batch + 1)},
      {"kv_indices", args.kv_indices,
       p.paging.flat ? footprint(args.kv_indices, sizeof(int32_t),
                                 {{p.paging.table_pages, p.paging.table_page}})
                     : Footprint{}},
      {"kv_last_page_len", args.kv_last_page_len,
       lengths(p.kv_last_page_len, args.kv_last_page_len, p.batch)},
      {"cache_leftpad", args.cache_leftpad, lengths(p.cache_leftpad, args.cache_leftpad, p.batch)},
      {"tree_mask", args.tree_mask,
       p.tree_mask.present ? footprint(args.tree_mask, sizeof(int32_t),
                                       {{p.packed ? 1 : p.batch, p.tree_mask.batch},
                                        {p.packed ? p.total_q : p.seqlen_q, p.tree_mask.query},
                                        {p.tree_mask.words, p.tree_mask.word}})
                           : Footprint{}},
      {"o_scale", args.o_scale, vector(p.o_scale, args.o_scale)},
  }};
}

std::array<NamedMemory, 6> gradients_written(const BackwardProblem& problem,
                                             const BackwardArguments& args) {
  const ForwardProblem& p = problem.forward;
  const auto vector = [&p](const VectorInput& output, const void* data, DType dtype) {
    return vector_footprint(output, data, p.batch, p.heads_q, size_of(dtype));
  };
  return {{
      {"dq", args.dq,
       rows_footprint(p, problem.dq, args.dq, problem.dq_dtype, true, p.head_dim_qk)},
      {"dk", args.dk,
       rows_footprint(p, problem.dk, args.dk, problem.dk_dtype, false, p.head_dim_qk)},
      {"dv", args.dv,
       rows_footprint(p, problem.dv, args.dv, problem.dv_dtype, false, p.head_dim_v)},
      {"d_bias", args.d_bias, pair_footprint(p, problem.d_bias, args.d_bias)},
      {"d_sinks", args.d_sinks, vector(problem.d_sinks, args.d_sinks, problem.d_sinks_dtype)},
      {"d_alibi_slopes", args.d_alibi_slopes,
       vector(problem.d_alibi_slopes, args.d_alibi_slopes, problem.d_alibi_slopes_dtype)},
  }};
}

std::array<NamedMemory, 2> gradients_read(const BackwardProblem& problem,
                                          const BackwardArguments& args) {
  const ForwardProblem& p = problem.forward;
  return {
      {{"d_o", args.d_o, rows_footprint(p, problem.d_o, args.d_o, p.o_dtype, true, p.head_dim_v)},
       {"d_lse", args.d_lse,
        problem.has_d_lse
            ? rows_footprint(p, problem.d_lse, args.d_lse, problem.d_lse_dtype, true, 1)
            : Footprint{}}}};
}

}  // namespace flashcore

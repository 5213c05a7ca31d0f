// Merge and append as backends read them: validated, strides of one shape.
#pragma once

#include <cstdint>

#include "flashcore/serving.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// What merge and append compute with, and what a cache may store as it is.
constexpr bool is_wide_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

struct MergeProblem {
  DType dtype = DType::f32;  // of both parts
  DType o_dtype = DType::f32;
  int64_t batch = 0;  // 1 where packed
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t head_dim = 0;
  RowStrides o_a, o_b, lse_a, lse_b, o, lse;  // row stride of an LSE is between queries
  bool has_lse = false;
};

Result<MergeProblem> resolve(const Merge& what);
Status check_pointers(const Merge& what, const MergeProblem& problem, const MergeArguments& args);

struct AppendProblem {
  // The cache, with the new rows as queries: q is k_new, seqlens_q is seqlens_new, and o is v_new.
  ForwardProblem cache;
  RowStrides k_new, v_new, q, q_out;
  bool has_q = false;
  int64_t heads_q = 0;
  int64_t rotary_dim = 0;  // 0: no rotation
  bool from_tables = false;
  int64_t positions = 0;          // that tables have
  RowStrides rope_cos, rope_sin;  // row: position; head: pair
  float rope_base = 0;
  float rope_scale = 1;
  bool interleaved = false;
};

Result<AppendProblem> resolve(const Append& what);
// Which a GPU's run is held to: nothing that lies in its memory is read.
Status check_pointers(const Append& what, const AppendProblem& problem,
                      const AppendArguments& args);
// Those, lengths, and that every new row has a place; for the host.
Status check_arguments(const Append& what, const AppendProblem& problem,
                       const AppendArguments& args);

// The arguments of the cache, as attention would have them.
Arguments cache_arguments(const AppendArguments& args);

// Entry b: where its new rows begin in packed tensors, how many there are, the row of the cache that
// the first becomes, and its position.
struct NewRows {
  int64_t begin = 0;
  int64_t in_use = 0;
  int64_t all = 0;  // that belong to the entry
  int64_t first_row = 0;
  int64_t position = 0;
};
NewRows new_rows(const AppendProblem& problem, const AppendArguments& args, int64_t b);

}  // namespace flashcore

// Merge and append in the form that backends read: validated, with uniform strides.
#pragma once

#include <cstdint>

#include "flashcore/serving.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// Returns whether merge and append can compute with the type; caches may store it unconverted.
constexpr bool is_wide_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

struct MergeProblem {
  DType dtype = DType::f32;  // dtype of both parts
  DType o_dtype = DType::f32;
  int64_t batch = 0;  // 1 if packed
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t head_dim = 0;
  RowStrides o_a, o_b, lse_a, lse_b, o, lse;  // an LSE's row stride is between queries
  bool has_lse = false;
};

Result<MergeProblem> resolve(const Merge& what);

struct AppendProblem {
  // The cache as an attention problem, with the new rows as queries: q is k_new, seqlens_q is seqlens_new, o is v_new.
  ForwardProblem cache;
  RowStrides k_new, v_new, q, q_out;
  bool has_q = false;
  int64_t heads_q = 0;
  int64_t rotary_dim = 0;  // 0: no rotation
  bool from_tables = false;
  int64_t positions = 0;          // rows of the tables
  RowStrides rope_cos, rope_sin;  // row: position; head: pair
  float rope_base = 0;
  float rope_scale = 1;
  bool interleaved = false;
};

Result<AppendProblem> resolve(const Append& what);
// Checks the lengths of a run, where the host can read them, and that every new row has a place.
Status check_places(const AppendProblem& problem, const AppendArguments& args);

// The cache's arguments, as attention would get them.
Arguments cache_arguments(const AppendArguments& args);

// Entry b: the start of its new rows in packed tensors, their number, the cache row of the first
// new row, and its position.
struct NewRows {
  int64_t begin = 0;
  int64_t in_use = 0;
  int64_t all = 0;  // rows that belong to the entry
  int64_t first_row = 0;
  int64_t position = 0;
};
NewRows new_rows(const AppendProblem& problem, const AppendArguments& args, int64_t b);

}  // namespace flashcore

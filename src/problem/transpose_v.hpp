// V's transposition in the form that backends read: validated, with uniform strides.
#pragma once

#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore {

struct TransposeProblem {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t rows = 0;  // V's rows, one per key
  int64_t head_dim = 0;
  int64_t columns = 0;
  RowStrides v, v_out;  // v_out.row is between dimensions
};

Result<TransposeProblem> resolve_transpose(const TensorDesc& v, const TensorDesc& v_out);

Status check_transpose_pointers(const TensorDesc& v, const void* data, const TensorDesc& v_out,
                                const void* out);

}  // namespace flashcore

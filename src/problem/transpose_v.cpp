// Checks of transpose_v.
#include "problem/transpose_v.hpp"

#include <span>

#include "problem/dtypes.hpp"
#include "problem/layout.hpp"
#include "problem/memory.hpp"
#include "problem/pointer.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {
namespace {

int64_t elements(const TensorDesc& tensor) {
  for (const int64_t extent : tensor.shape) {
    if (extent == 0) return 0;
  }
  return 1;
}

}  // namespace

Result<TransposeProblem> resolve_transpose(const TensorDesc& v, const TensorDesc& v_out) {
  constexpr std::string_view kRows = "[B, H, S, D]", kColumns = "[B, H, D, columns]";
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value("v", v));
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value("v_out", v_out));
  if (!is_fp8(v.dtype)) {
    return invalid("v: dtype is {}, wanted f8e4m3 or f8e5m2", to_string(v.dtype));
  }
  FLASHCORE_RETURN_IF_ERROR(check_dtype("v_out", v_out, v.dtype));
  FLASHCORE_RETURN_IF_ERROR(check_layout("v", v, 4, kRows));
  FLASHCORE_RETURN_IF_ERROR(check_layout("v_out", v_out, 4, kColumns));
  const int64_t rows = v.shape[2], head_dim = v.shape[3], columns = v_out.shape[3];
  FLASHCORE_RETURN_IF_ERROR(
      check_shape("v_out", v_out, {v.shape[0], v.shape[1], head_dim, columns}, false, kColumns));
  if (columns % kColumnBlock != 0 || columns < rows) {
    return invalid("v_out: shape {} has {} columns, wanted a multiple of {}, at least v's {} rows",
                   shape_text(v_out), columns, kColumnBlock, rows);
  }
  FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows("v", v));
  FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows("v_out", v_out));
  FLASHCORE_RETURN_IF_ERROR(check_no_overlap("v_out", v_out));
  return TransposeProblem{.batch = v.shape[0],
                          .heads = v.shape[1],
                          .rows = rows,
                          .head_dim = head_dim,
                          .columns = columns,
                          .v = row_strides(v, false),
                          .v_out = row_strides(v_out, false)};
}

Status check_transpose_pointers(const TensorDesc& v, const void* data, const TensorDesc& v_out,
                                const void* out) {
  FLASHCORE_RETURN_IF_ERROR(check_pointer("v", data, v.dtype, elements(v) > 0));
  FLASHCORE_RETURN_IF_ERROR(check_pointer("v_out", out, v_out.dtype, elements(v_out) > 0));
  const NamedMemory input{"v", data, footprint(v, data)};
  return check_apart({"v_out", out, footprint(v_out, out)}, std::span(&input, 1));
}

}  // namespace flashcore

// Checks of transpose_v.
#include "problem/transpose_v.hpp"

#include "problem/layout.hpp"
#include "problem/operands.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {

Result<TransposeProblem> resolve_transpose(const TensorDesc& v, const TensorDesc& v_out) {
  const auto& [line, line_out] = operands::kTransposeV;
  Extents extents;
  FLASHCORE_RETURN_IF_ERROR(check_type(line, v));
  FLASHCORE_RETURN_IF_ERROR(check_type(line_out, v_out));
  FLASHCORE_RETURN_IF_ERROR(check_dtype("v_out", v_out, v.dtype));
  FLASHCORE_RETURN_IF_ERROR(check_shape(line, v, 0, extents));
  FLASHCORE_RETURN_IF_ERROR(check_shape(line_out, v_out, 0, extents));
  const int64_t rows = extents["S"], columns = extents["columns"];
  if (columns % kColumnBlock != 0 || columns < rows) {
    return invalid("v_out: shape {} has {} columns, wanted a multiple of {}, at least v's {} rows",
                   shape_text(v_out), columns, kColumnBlock, rows);
  }
  return TransposeProblem{.batch = extents["B"],
                          .heads = extents["H"],
                          .rows = rows,
                          .head_dim = extents["D"],
                          .columns = columns,
                          .v = row_strides(v, false),
                          .v_out = row_strides(v_out, false)};
}

Status check_transpose_pointers(const TensorDesc& v, const void* data, const TensorDesc& v_out,
                                const void* out) {
  const auto& [line, line_out] = operands::kTransposeV;
  const NamedMemory both[] = {memory_of(line, v, data), memory_of(line_out, v_out, out)};
  return check_memory(both);
}

}  // namespace flashcore

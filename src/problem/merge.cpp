// Checks of merge.
#include "problem/layout.hpp"
#include "problem/operands.hpp"
#include "problem/serving.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {

Result<MergeProblem> resolve(const Merge& what) {
  const bool packed = what.o_a.rank == 3;
  Extents extents;
  FLASHCORE_RETURN_IF_ERROR(check_types(what));
  FLASHCORE_RETURN_IF_ERROR(check_dtype("o_b", what.o_b, what.o_a.dtype));
  if (what.o.dtype != what.o_a.dtype && what.o.dtype != DType::f32) {
    return invalid("o: dtype is {}, wanted o_a's {} or f32", to_string(what.o.dtype),
                   to_string(what.o_a.dtype));
  }
  FLASHCORE_RETURN_IF_ERROR(check_shapes(what, packed ? kPacked : 0, extents, "o_a"));
  MergeProblem p;
  p.dtype = what.o_a.dtype;
  p.o_dtype = what.o.dtype;
  p.batch = packed ? 1 : extents["B"];
  p.rows = packed ? extents["total_q"] : extents["Sq"];
  p.heads = extents["Hq"];
  p.head_dim = extents["Dv"];
  p.o_a = row_strides(what.o_a, packed);
  p.o_b = row_strides(what.o_b, packed);
  p.o = row_strides(what.o, packed);
  // The strides of an LSE are row strides without the last dimension.
  p.lse_a = row_strides(what.lse_a, packed);
  p.lse_b = row_strides(what.lse_b, packed);
  p.has_lse = what.lse.has_value();
  if (what.lse) p.lse = row_strides(*what.lse, packed);
  return p;
}

}  // namespace flashcore

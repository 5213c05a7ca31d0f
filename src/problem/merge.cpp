// Checks of merge.
#include <cstdint>
#include <string_view>
#include <utility>

#include "problem/layout.hpp"
#include "problem/memory.hpp"
#include "problem/pointer.hpp"
#include "problem/serving.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {
namespace {

// Checks that a tensor has the rank of `like`, 3 or 4, and its shape.
Status check_like(std::string_view name, const TensorDesc& tensor, const TensorDesc& like,
                  int32_t rank, std::string_view shape) {
  const auto& [a, b, c, d] = like.shape;
  if (rank == 2) return check_shape(name, tensor, {a, b}, false, shape);
  if (rank == 3) return check_shape(name, tensor, {a, b, c}, false, shape);
  return check_shape(name, tensor, {a, b, c, d}, false, shape);
}

// The strides of an LSE are row strides without the last dimension.
RowStrides lse_strides(const TensorDesc& lse, bool packed) { return row_strides(lse, packed); }

struct NamedTensor {
  const char* name;
  const TensorDesc* desc;
  const void* data;
};

Status check_apart(const NamedTensor& output, const NamedTensor& other, bool may_be_same) {
  if (may_be_same && output.data == other.data && same_layout(*output.desc, *other.desc)) return {};
  const NamedMemory others[] = {{other.name, other.data, footprint(*other.desc, other.data)}};
  return flashcore::check_apart({output.name, output.data, footprint(*output.desc, output.data)},
                                others);
}

}  // namespace

Result<MergeProblem> resolve(const Merge& what) {
  MergeProblem p;
  for (const auto& [name, tensor] :
       {std::pair{"o_a", &what.o_a}, {"o_b", &what.o_b}, {"o", &what.o}}) {
    FLASHCORE_RETURN_IF_ERROR(check_dtype_value(name, *tensor));
    if (!is_wide_float(tensor->dtype)) {
      return invalid("{}: dtype is {}, wanted f32, f16 or bf16", name, to_string(tensor->dtype));
    }
  }
  const bool packed = what.o_a.rank == 3;
  const int32_t rank = packed ? 3 : 4;
  const std::string_view shape = packed ? "[total_q, Hq, Dv]" : "[B, Hq, Sq, Dv]";
  FLASHCORE_RETURN_IF_ERROR(check_layout("o_a", what.o_a, rank, shape));
  FLASHCORE_RETURN_IF_ERROR(check_dtype("o_b", what.o_b, what.o_a.dtype));
  if (what.o.dtype != what.o_a.dtype && what.o.dtype != DType::f32) {
    return invalid("o: dtype is {}, wanted o_a's {} or f32", to_string(what.o.dtype),
                   to_string(what.o_a.dtype));
  }
  for (const auto& [name, tensor] :
       {std::pair{"o_a", &what.o_a}, {"o_b", &what.o_b}, {"o", &what.o}}) {
    FLASHCORE_RETURN_IF_ERROR(check_like(name, *tensor, what.o_a, rank, shape));
    FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows(name, *tensor));
  }
  FLASHCORE_RETURN_IF_ERROR(check_no_overlap("o", what.o));
  const std::string_view lse_shape = packed ? "[total_q, Hq]" : "[B, Hq, Sq]";
  const auto check_lse = [&](std::string_view name, const TensorDesc& lse) -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_dtype(name, lse, DType::f32));
    return check_like(name, lse, what.o_a, rank - 1, lse_shape);
  };
  FLASHCORE_RETURN_IF_ERROR(check_lse("lse_a", what.lse_a));
  FLASHCORE_RETURN_IF_ERROR(check_lse("lse_b", what.lse_b));
  if (what.lse) {
    FLASHCORE_RETURN_IF_ERROR(check_lse("lse", *what.lse));
    FLASHCORE_RETURN_IF_ERROR(check_no_overlap("lse", *what.lse));
    p.has_lse = true;
    p.lse = lse_strides(*what.lse, packed);
  }
  p.dtype = what.o_a.dtype;
  p.o_dtype = what.o.dtype;
  const auto& extents = what.o_a.shape;
  p.batch = packed ? 1 : extents[0];
  p.rows = packed ? extents[0] : extents[2];
  p.heads = extents[1];
  p.head_dim = packed ? extents[2] : extents[3];
  p.o_a = row_strides(what.o_a, packed);
  p.o_b = row_strides(what.o_b, packed);
  p.o = row_strides(what.o, packed);
  p.lse_a = lse_strides(what.lse_a, packed);
  p.lse_b = lse_strides(what.lse_b, packed);
  return p;
}

Status check_pointers(const Merge& what, const MergeProblem& p, const MergeArguments& args) {
  const bool has_rows = p.batch > 0 && p.rows > 0 && p.heads > 0;
  const bool has_elements = has_rows && p.head_dim > 0;
  const NamedTensor inputs[] = {{"o_a", &what.o_a, args.o_a},
                                {"o_b", &what.o_b, args.o_b},
                                {"lse_a", &what.lse_a, args.lse_a},
                                {"lse_b", &what.lse_b, args.lse_b}};
  for (size_t n = 0; n < 4; ++n) {
    FLASHCORE_RETURN_IF_ERROR(check_pointer(inputs[n].name, inputs[n].data, inputs[n].desc->dtype,
                                            n < 2 ? has_elements : has_rows));
  }
  const NamedTensor o{"o", &what.o, args.o};
  FLASHCORE_RETURN_IF_ERROR(check_pointer("o", args.o, p.o_dtype, has_elements));
  for (size_t n = 0; n < 4; ++n) FLASHCORE_RETURN_IF_ERROR(check_apart(o, inputs[n], n < 2));
  if (!p.has_lse) return {};
  const NamedTensor lse{"lse", &*what.lse, args.lse};
  FLASHCORE_RETURN_IF_ERROR(check_pointer("lse", args.lse, DType::f32, has_rows));
  for (size_t n = 0; n < 4; ++n) FLASHCORE_RETURN_IF_ERROR(check_apart(lse, inputs[n], n >= 2));
  return check_apart(lse, o, false);
}

}  // namespace flashcore

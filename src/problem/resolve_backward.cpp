// Turns a caller's gradients into what backends read, and refuses malformed descriptions.
#include <algorithm>
#include <string_view>
#include <tuple>

#include "problem/backward.hpp"
#include "problem/layout.hpp"
#include "problem/operands.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {
namespace {

bool has_gradients(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

Status check_forward(const ForwardProblem& p) {
  if (!has_gradients(p.dtype)) {
    return invalid("q: dtype is {}, wanted f32, f16 or bf16 for a backward pass",
                   to_string(p.dtype));
  }
  if (!has_gradients(p.o_dtype) && p.o_dtype != DType::f64) {
    return invalid("o: dtype is {}, wanted f32, f16, bf16 or f64 for a backward pass",
                   to_string(p.o_dtype));
  }
  if (p.paging.present) {
    return invalid("{}: is given, wanted keys and values in one piece for a backward pass",
                   p.paging.flat ? "kv_indices" : "page_table");
  }
  if (p.cache_leftpad.present) {
    return invalid("cache_leftpad: is given, wanted keys from the first row for a backward pass");
  }
  if (p.tree_mask.present) {
    return invalid("tree_mask: is given, wanted a mask of pairs for a backward pass");
  }
  if (p.k_dtype != p.dtype) {
    return invalid("k: dtype is {}, wanted q's {} for a backward pass", to_string(p.k_dtype),
                   to_string(p.dtype));
  }
  if (!p.has_lse) return invalid("lse: is missing, wanted the LSE of the forward pass");
  return {};
}

Status check_like(std::string_view name, const TensorDesc& tensor, const TensorDesc& like,
                  std::string_view shape) {
  FLASHCORE_RETURN_IF_ERROR(check_layout(name, tensor, like.rank, shape));
  if (std::equal(tensor.shape.begin(), tensor.shape.begin() + like.rank, like.shape.begin())) {
    return {};
  }
  return invalid("{}: shape is {}, wanted {} = {}", name, shape_text(tensor), shape,
                 shape_text(like));
}

// Checks a gradient of the type of its tensor, or of f32 or f64.
Status check_output(std::string_view name, const TensorDesc& tensor, const TensorDesc& like,
                    std::string_view shape) {
  if (tensor.dtype != like.dtype && tensor.dtype != DType::f32 && tensor.dtype != DType::f64) {
    return invalid("{}: dtype is {}, wanted {} or f32", name, to_string(tensor.dtype),
                   to_string(like.dtype));
  }
  FLASHCORE_RETURN_IF_ERROR(check_like(name, tensor, like, shape));
  return check_no_overlap(name, tensor);
}

Status resolve_rows(const Problem& problem, const Gradients& gradients, BackwardProblem& out) {
  const ForwardProblem& p = out.forward;
  FLASHCORE_RETURN_IF_ERROR(check_dtype("d_o", gradients.d_o, p.o_dtype));
  FLASHCORE_RETURN_IF_ERROR(check_like("d_o", gradients.d_o, problem.o, "o's"));
  FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows("d_o", gradients.d_o));
  out.d_o = row_strides(gradients.d_o, p.packed);
  for (const auto& [name, tensor, like, shape, strides, dtype] :
       {std::tuple{"dq", &gradients.dq, &problem.q, "q's", &out.dq, &out.dq_dtype},
        {"dk", &gradients.dk, &problem.k, "k's", &out.dk, &out.dk_dtype},
        {"dv", &gradients.dv, &problem.v, "v's", &out.dv, &out.dv_dtype}}) {
    FLASHCORE_RETURN_IF_ERROR(check_output(name, *tensor, *like, shape));
    FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows(name, *tensor));
    *strides = row_strides(*tensor, p.packed);
    *dtype = tensor->dtype;
  }
  if (gradients.d_lse) {
    FLASHCORE_RETURN_IF_ERROR(check_like("d_lse", *gradients.d_lse, *problem.lse,
                                         p.packed ? "[total_q, Hq]" : "[B, Hq, Sq]"));
    out.has_d_lse = true;
    out.d_lse_dtype = gradients.d_lse->dtype;
    out.d_lse = row_strides(*gradients.d_lse, p.packed);
  }
  return {};
}

Status check_has_input(std::string_view name, bool present, std::string_view input) {
  if (present) return {};
  return invalid("{}: is given, wanted it only with {}", name, input);
}

Status resolve_d_bias(const Problem& problem, const Gradients& gradients, BackwardProblem& out) {
  if (!gradients.d_bias) return {};
  FLASHCORE_RETURN_IF_ERROR(check_has_input("d_bias", problem.bias.has_value(), "a bias"));
  const TensorDesc& bias = *problem.bias;
  FLASHCORE_RETURN_IF_ERROR(check_output("d_bias", *gradients.d_bias, bias, "the bias'"));
  out.d_bias = pair_strides(*gradients.d_bias);
  for (size_t d = 0; d < 4; ++d) out.d_bias_extents[d] = bias.shape[d];
  out.d_bias_elements = product_of({bias.shape[0], bias.shape[1], bias.shape[2], bias.shape[3]});
  return {};
}

Status resolve_head_sums(const Problem& problem, const Gradients& gradients, BackwardProblem& out) {
  if (gradients.d_sinks) {
    FLASHCORE_RETURN_IF_ERROR(check_has_input("d_sinks", problem.sinks.has_value(), "sinks"));
    FLASHCORE_RETURN_IF_ERROR(check_output("d_sinks", *gradients.d_sinks, *problem.sinks, "[Hq]"));
    out.d_sinks = head_strides(*gradients.d_sinks);
    out.d_sinks_dtype = gradients.d_sinks->dtype;
  }
  if (gradients.d_alibi_slopes) {
    FLASHCORE_RETURN_IF_ERROR(
        check_has_input("d_alibi_slopes", problem.alibi_slopes.has_value(), "alibi_slopes"));
    const TensorDesc& d_slopes = *gradients.d_alibi_slopes;
    const TensorDesc& slopes = *problem.alibi_slopes;
    FLASHCORE_RETURN_IF_ERROR(check_output("d_alibi_slopes", d_slopes, slopes, "the slopes'"));
    out.d_alibi_slopes = head_strides(d_slopes);
    out.d_alibi_slopes_dtype = d_slopes.dtype;
    out.d_alibi_slopes_elements =
        slopes.rank == 1 ? slopes.shape[0] : product_of({slopes.shape[0], slopes.shape[1]});
  }
  return {};
}

}  // namespace

Result<BackwardProblem> resolve(const Problem& problem, const Gradients& gradients) {
  Result<ForwardProblem> forward = resolve(problem);
  if (!forward.ok()) return forward.status();
  BackwardProblem out;
  out.forward = *forward;
  for (const LargestValue& one : kLargestOutputs) out.forward.*one.output = {};
  FLASHCORE_RETURN_IF_ERROR(check_forward(out.forward));
  FLASHCORE_RETURN_IF_ERROR(check_types(gradients));
  FLASHCORE_RETURN_IF_ERROR(resolve_rows(problem, gradients, out));
  FLASHCORE_RETURN_IF_ERROR(resolve_d_bias(problem, gradients, out));
  FLASHCORE_RETURN_IF_ERROR(resolve_head_sums(problem, gradients, out));
  return out;
}

}  // namespace flashcore

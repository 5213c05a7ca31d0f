// What is refused for every kernel that does not say that it computes it.
#include <fmt/format.h>

#include "kernel/kernel.hpp"
#include "problem/dtypes.hpp"

namespace flashcore {
namespace {

std::string refuse_dropout_state(const Kernel& kernel, const ForwardProblem& p) {
  if (kernel.reads_dropout_state || !p.dropout_state.present) return {};
  return "dropout_state: is given, wanted seed and offset as numbers";
}

std::string refuse_caches(const Kernel& kernel, const ForwardProblem& p) {
  if (kernel.reads_caches) return {};
  if (p.paging.present) {
    return fmt::format("{}: is given, wanted keys and values in one piece",
                       p.paging.flat ? "kv_indices" : "page_table");
  }
  if (p.cache_leftpad.present) return "cache_leftpad: is given, wanted keys from the first row";
  if (p.k_dtype != p.dtype && !is_fp8(p.dtype)) {
    return fmt::format("k: dtype is {}, wanted q's {}", to_string(p.k_dtype), to_string(p.dtype));
  }
  return {};
}

std::string refuse_mixes(const Kernel& kernel, const ForwardProblem& p) {
  if (kernel.fp8_types == Fp8Types::any || !p.mixes_fp8()) return {};
  if (p.v_dtype != p.k_dtype) {
    return fmt::format("v: dtype is {}, wanted k's {}", to_string(p.v_dtype), to_string(p.k_dtype));
  }
  if (kernel.fp8_types == Fp8Types::kv_apart) return {};
  return fmt::format("k: dtype is {}, wanted q's {}", to_string(p.k_dtype), to_string(p.dtype));
}

std::string refuse_tree_mask(const Kernel& kernel, const ForwardProblem& p) {
  if (kernel.reads_tree_masks || !p.tree_mask.present) return {};
  return "tree_mask: is given, wanted a mask of pairs";
}

std::string refuse_transposed_v(const Kernel& kernel, const ForwardProblem& p) {
  if (kernel.reads_transposed_v || !p.v_transposed) return {};
  return "v_transposed: is true, wanted V in rows of keys";
}

std::string refuse_more_outputs(const Kernel& kernel, const ForwardProblem& p) {
  if (!kernel.scales_o && p.o_scale.present)
    return "o_scale: is given, wanted an O without a scale";
  if (kernel.writes_largest || (!p.amax_o.present && !p.amax_s.present)) return {};
  return fmt::format("{}: is asked for, wanted O and LSE alone",
                     p.amax_o.present ? "amax_o" : "amax_s");
}

}  // namespace

std::string refusal_of(const Kernel& kernel, const ForwardProblem& problem,
                       const PlanContext& context) {
  if (!computes(kernel, problem)) return "pass: is forward, wanted backward";
  std::string refusal = refuse_dropout_state(kernel, problem);
  if (refusal.empty()) refusal = refuse_caches(kernel, problem);
  if (refusal.empty()) refusal = refuse_tree_mask(kernel, problem);
  if (refusal.empty()) refusal = refuse_transposed_v(kernel, problem);
  if (refusal.empty()) refusal = refuse_more_outputs(kernel, problem);
  if (refusal.empty()) refusal = kernel.refuses(problem, context);
  // Last: what takes no type of fp8 says so.
  return refusal.empty() ? refuse_mixes(kernel, problem) : refusal;
}

std::string refusal_of(const Kernel& kernel, const BackwardProblem& problem,
                       const PlanContext& context) {
  if (!computes(kernel, problem)) return "pass: is backward, wanted forward";
  std::string refusal = refuse_dropout_state(kernel, problem.forward);
  return refusal.empty() ? kernel.backward.refuses(problem, context) : refusal;
}

}  // namespace flashcore

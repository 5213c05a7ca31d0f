// The sentences of what kernels do not compute: the argument, its value, and what is wanted.
#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kernel/device_code.hpp"
#include "kernel/kernel.hpp"

namespace flashcore {
namespace {

using enum Feature;

// "a, b or c"
std::string either(const std::vector<std::string>& words) {
  std::string text;
  for (size_t n = 0; n < words.size(); ++n) {
    if (n > 0) text += n + 1 < words.size() ? ", " : " or ";
    text += words[n];
  }
  return text;
}

std::string text_of(Dtypes dtypes) {
  std::vector<std::string> names;
  for (const DType one : {DType::f16, DType::bf16, DType::f32, DType::f8e4m3, DType::f8e5m2}) {
    if (dtypes.has(one)) names.emplace_back(to_string(one));
  }
  return either(names);
}

// ---- one feature

const Given* given(Feature feature) {
  for (const Given& one : given::kAll) {
    if (one.feature == feature) return &one;
  }
  return nullptr;
}

std::string of_dtype(std::string_view name, DType dtype, std::string_view wanted) {
  return fmt::format("{}: dtype is {}, wanted {}", name, to_string(dtype), wanted);
}

std::string that_of_q(std::string_view name, DType dtype, DType q) {
  return of_dtype(name, dtype, fmt::format("q's {}", to_string(q)));
}

template <class Refuse>
std::string first_of(const std::array<TensorRows, 4>& tensors, const Refuse& refuse) {
  for (const TensorRows& one : tensors) {
    if (std::string refusal = refuse(one); !refusal.empty()) return refusal;
  }
  return {};
}

// With a value.
std::string sentence(Feature one, const ForwardProblem& p) {
  switch (one) {
    case lse_of_f64:
      return of_dtype("lse", p.lse_dtype, "f32");
    case o_apart:
      return that_of_q("o", p.o_dtype, p.dtype);
    case narrow_kv:
    case k_apart:
      return of_dtype("k", p.k_dtype, fmt::format("q's {}", to_string(p.dtype)));
    case v_apart:
      return of_dtype("v", p.v_dtype, fmt::format("k's {}", to_string(p.k_dtype)));
    case v_head_dim:
      return fmt::format("v: head dimension is {}, wanted q's {}", p.head_dim_v, p.head_dim_qk);
    case grouped_heads:
      return fmt::format("k: has {} heads, wanted q's {}", p.heads_kv, p.heads_q);
    case window_left:
      return fmt::format("window_left: is {}, wanted -1 (no limit)", p.band.left);
    case window_right:
      return fmt::format("window_right: is {}, wanted -1 (no limit) or 0 (causal)", p.band.right);
    case softcap:
      return fmt::format("softcap: is {}, wanted 0", p.softcap);
    case scale_not_positive:
      return fmt::format("softmax_scale: is {}, wanted more than 0", p.softmax_scale);
    case dropout:
      return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
    case block_scales:
      return fmt::format("{}: has a scale for every {} keys, wanted one per head",
                         p.k_scale.present && p.k_scale.block != 0 ? "k_scale" : "v_scale",
                         p.kv_scale_block);
    case unaligned_rows:
      return first_of(forward_rows(p), unaligned);
    default:
      return first_of(forward_rows(p), unmapped);
  }
}

std::string sentence(Feature one, const BackwardProblem& problem) {
  const DType q = problem.forward.dtype;
  const std::tuple<std::string_view, bool, DType> outputs[] = {
      {"dq", true, problem.dq_dtype},
      {"dk", true, problem.dk_dtype},
      {"dv", true, problem.dv_dtype},
      {"d_bias", problem.d_bias.present, problem.d_bias.dtype},
      {"d_sinks", problem.d_sinks.present, problem.d_sinks_dtype},
      {"d_alibi_slopes", problem.d_alibi_slopes.present, problem.d_alibi_slopes_dtype}};
  switch (one) {
    case d_lse_of_f64:
      return of_dtype("d_lse", problem.d_lse_dtype, "f32");
    case gradients_of_f64:
      for (const auto& [name, present, dtype] : outputs) {
        if (present && dtype == DType::f64) return of_dtype(name, dtype, "at most 32 bits");
      }
      return {};
    case gradients_apart:
      for (const auto& [name, present, dtype] : std::span(outputs).first(3)) {
        if (dtype != q) return that_of_q(name, dtype, q);
      }
      return {};
    case unaligned_gradients:
      return first_of(gradient_rows(problem), unaligned);
    case unmapped_gradients:
      return first_of(gradient_rows(problem), unmapped);
    default:
      return sentence(one, problem.forward);
  }
}

template <class AnyProblem>
std::string refuse_feature(Feature one, const AnyProblem& problem) {
  const Given* const input = given(one);
  if (input == nullptr) return sentence(one, problem);
  return fmt::format("{}: is given, wanted {}", input->name, input->wanted);
}

// Refuses a problem without any of the features that the kernel is for.
std::string refuse_without(Features needs) {
  std::vector<std::string> names;
  for (const Given& one : given::kAll) {
    if (needs.has(one.feature)) names.emplace_back(one.name);
  }
  if (needs.has(dropout)) names.emplace_back("dropout_p");
  if (names.size() == 1) return names[0] + ": is not given, wanted it";
  return fmt::format("{}: is not given, wanted one of {}", names[0], either(names));
}

// ---- the rest

std::string refuse_arch(Arch arch, int32_t capability) {
  if (capability >= arch.least && capability <= arch.most) return {};
  const std::string_view range = arch.least == arch.most   ? ""
                                 : capability < arch.least ? " or later"
                                                           : " at most";
  return fmt::format("device: compute capability is {}, wanted {}{}", capability_text(capability),
                     capability_text(capability < arch.least ? arch.least : arch.most), range);
}

template <class AnyProblem>
std::string refuse_types(const SupportsOf<AnyProblem>& supports, const ForwardProblem& p) {
  if (!supports.q.has(p.dtype)) return of_dtype("q", p.dtype, text_of(supports.q));
  if (supports.features.has(o_apart) && !supports.o.has(p.o_dtype))
    return of_dtype("o", p.o_dtype, text_of(supports.o));
  return {};
}

std::string text_of(HeadDims wanted) {
  if (wanted.least == wanted.most) return std::to_string(wanted.most);
  if (wanted.step == 1) return fmt::format("at most {}", wanted.most);
  return fmt::format("a multiple of {} up to {}", wanted.step, wanted.most);
}

std::string refuse_head_dims(HeadDims wanted, const ForwardProblem& p) {
  for (const auto& [name, head_dim] : {std::pair{"q", p.head_dim_qk}, {"v", p.head_dim_v}}) {
    if (head_dim >= wanted.least && head_dim <= wanted.most && head_dim % wanted.step == 0)
      continue;
    return fmt::format("{}: head dimension is {}, wanted {}", name, head_dim, text_of(wanted));
  }
  return {};
}

const ForwardProblem& forward_of(const ForwardProblem& p) { return p; }
const ForwardProblem& forward_of(const BackwardProblem& p) { return p.forward; }

template <class AnyProblem>
std::string refuse(const SupportsOf<AnyProblem>& supports, const AnyProblem& problem,
                   Features features, const PlanContext& context) {
  const ForwardProblem& p = forward_of(problem);
  if (std::string refusal = refuse_types(supports, p); !refusal.empty()) return refusal;
  const Features left = features - supports.features;
  if (const Features own = left - feature_sets::kLayouts; !own.empty()) {
    return refuse_feature(own.first(), problem);
  }
  if (!supports.needs.empty() && (features & supports.needs).empty()) {
    return refuse_without(supports.needs);
  }
  std::string refusal = refuse_head_dims(supports.head_dims, p);
  if (refusal.empty()) refusal = refuse_rows(p, supports.rows_below);
  if (refusal.empty() && !left.empty()) refusal = refuse_feature(left.first(), problem);
  if (refusal.empty() && supports.extra) refusal = supports.extra(problem, context);
  return refusal;
}

template <class AnyProblem>
std::string refuse_on_gpu(const SupportsOf<AnyProblem>& supports, std::string_view targets,
                          const AnyProblem& problem, Features features,
                          const PlanContext& context) {
  const int32_t capability = context.device.compute_capability;
  std::string refusal = refuse_arch(supports.arch, capability);
  if (refusal.empty()) refusal = refuse_code(targets, capability);
  return refusal.empty() ? refuse(supports, problem, features, context) : refusal;
}

template <class AnyProblem>
std::string refuse_on_its_device(const Variant& variant, const AnyProblem& problem,
                                 Features features, const PlanContext& context) {
  const auto& supports = supports_of(variant, problem);
  return variant.device == DeviceKind::cuda
             ? refuse_on_gpu(supports, variant.targets, problem, features, context)
             : refuse(supports, problem, features, context);
}

}  // namespace

std::string refuse_rows(const ForwardProblem& p, int64_t below) {
  for (const auto& [name, rows] : {std::pair{"q", p.packed ? p.total_q : p.seqlen_q},
                                   std::pair{"k", p.packed ? p.total_kv : p.seqlen_kv}}) {
    if (rows >= below)
      return fmt::format("{}: has {} rows, wanted less than {}", name, rows, below);
  }
  return {};
}

std::string refusal_on_gpu(const Supports& supports, std::string_view targets,
                           const ForwardProblem& problem, const PlanContext& context) {
  return refuse_on_gpu(supports, targets, problem, features_of(problem), context);
}

std::string refusal_on_gpu(const BackwardSupports& supports, std::string_view targets,
                           const BackwardProblem& problem, const PlanContext& context) {
  return refuse_on_gpu(supports, targets, problem, features_of(problem), context);
}

std::string refusal_of(const Variant& variant, const ForwardProblem& problem, Features features,
                       const PlanContext& context) {
  if (!computes(variant, problem)) return "pass: is forward, wanted backward";
  return refuse_on_its_device(variant, problem, features, context);
}

std::string refusal_of(const Variant& variant, const BackwardProblem& problem, Features features,
                       const PlanContext& context) {
  if (!computes(variant, problem)) return "pass: is backward, wanted forward";
  return refuse_on_its_device(variant, problem, features, context);
}

}  // namespace flashcore

#include "plan/cuda_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "cuda/backward_sm80/general/plan.hpp"
#include "cuda/backward_sm90/throughput/plan.hpp"
#include "cuda/backward_sm90/wide/plan.hpp"
#include "cuda/convert/fp8/layout.hpp"
#include "cuda/convert/fp8/plan.hpp"
#include "cuda/convert/v_rows/plan.hpp"
#include "cuda/convert/v_rows/supports.hpp"
#include "cuda/decode_sm80/split_kv/plan.hpp"
#include "cuda/decode_sm90/stream_kv/plan.hpp"
#include "cuda/forward_fp8_sm89/throughput/plan.hpp"
#include "cuda/forward_fp8_sm90/throughput/plan.hpp"
#include "cuda/forward_sm80/latency/plan.hpp"
#include "cuda/forward_sm80/throughput/plan.hpp"
#include "cuda/forward_sm90/latency/plan.hpp"
#include "cuda/forward_sm90/latency_wide/plan.hpp"
#include "cuda/forward_sm90/throughput/plan.hpp"
#include "cuda/ladder/plan.hpp"
#include "cuda/mla_sm90/latent/plan.hpp"
#include "plan/backward_choice.hpp"
#include "plan/forward_choice.hpp"
#include "plan/kernel_choice.hpp"
#include "problem/dtypes.hpp"

namespace flashcore {
namespace {

namespace sm80 = cuda::forward_sm80;
namespace sm90 = cuda::forward_sm90;

constexpr uintptr_t kAlignment = 16;

bool are_aligned(std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(), [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % kAlignment == 0;
  });
}
bool is_aligned(const Arguments& args) { return are_aligned({args.q, args.k, args.v, args.o}); }
bool is_aligned(const BackwardArguments& args) {
  return is_aligned(args.forward) && are_aligned({args.d_o, args.dq, args.dk, args.dv});
}

// A config belongs to one variant, so the other one gets none.
PlanContext with_own_choice(PlanContext context) {
  context.config.clear();
  return context;
}

bool is_bias_aligned(const Arguments& args) { return is_aligned(args) && are_aligned({args.bias}); }

// V is the first columns of K.
bool is_latent(const Arguments& args) { return args.v == args.k && is_aligned(args); }

// Pointers are known only at run time. Runs whose pointers `variant` does not take go to `other`, which
// takes any.
Variant for_any_pointers(Variant variant, const Variant& other,
                         bool (*takes)(const Arguments&) = is_aligned) {
  variant.plan = [own = std::move(variant.plan), other = other.plan, takes](
                     const ForwardProblem& p, const PlanContext& context) -> Result<PlannedKernel> {
    Result<PlannedKernel> aligned = own(p, context);
    if (!aligned.ok()) return aligned.status();
    Result<PlannedKernel> any = other(p, with_own_choice(context));
    if (!any.ok()) return any.status();
    return PlannedKernel{
        .workspace_bytes = std::max(aligned->workspace_bytes, any->workspace_bytes),
        .run = [aligned = std::move(aligned->run), any = std::move(any->run), takes](
                   const Arguments& args, std::span<std::byte> workspace, Stream stream) {
          return (takes(args) ? aligned : any)(args, workspace, stream);
        }};
  };
  return variant;
}

// The variant also refuses every problem that `other` refuses.
Variant unless_refused(Variant variant, const Variant& other) {
  variant.supports =
      but_not(variant.supports, [other](const ForwardProblem& p, const PlanContext& context) {
        return refusal_of(other, p, context);
      });
  return variant;
}

// for_any_pointers() for a backward pass.
Variant backward_for_any_pointers(Variant variant, const Variant& other) {
  variant.backward.plan = [own = std::move(variant.backward.plan), other = other.backward.plan](
                              const BackwardProblem& problem,
                              const PlanContext& context) -> Result<PlannedBackward> {
    Result<PlannedBackward> aligned = own(problem, context);
    if (!aligned.ok()) return aligned.status();
    Result<PlannedBackward> any = other(problem, with_own_choice(context));
    if (!any.ok()) return any.status();
    return PlannedBackward{
        .workspace_bytes = std::max(aligned->workspace_bytes, any->workspace_bytes),
        .run = [aligned = std::move(aligned->run), any = std::move(any->run)](
                   const BackwardArguments& args, std::span<std::byte> workspace, Stream stream) {
          return (is_aligned(args) ? aligned : any)(args, workspace, stream);
        }};
  };
  return variant;
}

// Adds reasons to decline to a variant's own. Which one is faster is decided here, not in its
// folder, so that its measurements stay valid for every choice.
template <class Declines>
Variant declining(Variant variant, Declines declines) {
  variant.declines = [own = std::move(variant.declines), more = std::move(declines)](
                         const ForwardProblem& p, const PlanContext& context) -> std::string {
    std::string why = own ? own(p, context) : std::string();
    return why.empty() ? more(p, context) : why;
  };
  return variant;
}

// The variant that is chosen for the problem inside of another kernel. If none is chosen, the
// refusal of `most`, which computes most problems.
cuda::convert::Inner choose_inner(const ForwardProblem& p, const PlanContext& context,
                                  std::string_view most) {
  KernelChoice choice = choose_kernel(p, context);
  if (choice.kernel != nullptr) return {choice.kernel, std::move(choice.config), {}};
  const Variant* const refuses = asked_for(most, p, context).variant;
  return {nullptr, {}, refuses == nullptr ? choice.reason : refusal_of(*refuses, p, context)};
}

// Chooses for an fp8 problem that was converted to 16 bits.
cuda::convert::Inner choose_16_bit(const ForwardProblem& p, const PlanContext& context) {
  return choose_inner(p, context, "forward_sm80_throughput");
}

// Chooses for a problem whose V was transposed back into rows.
cuda::convert::Inner choose_for_rows(const ForwardProblem& p, const PlanContext& context) {
  return choose_inner(p, context, is_fp8(p.dtype) ? "forward_sm80_throughput:fp8" : "decode_sm80");
}

// "bf16 by forward_sm90_throughput"
std::string by_inner(std::string_view what, const ForwardProblem& inner,
                     const PlanContext& context) {
  const Variant* const chosen = choose_kernel(inner, with_own_choice(context)).kernel;
  return chosen == nullptr ? std::string() : fmt::format("{} by {}", what, chosen->name);
}

// What converts tensors, and leaves the attention to other kernels.
std::vector<Variant> converting() {
  namespace convert = cuda::convert;
  Variant converted = convert::fp8::variant(choose_16_bit);
  converted.by_name_where = converted_by_name;
  converted.inner = [](const ForwardProblem& p, const PlanContext& context) {
    const convert::fp8::Layout layout = convert::fp8::layout_of(p);
    return by_inner(to_string(layout.dtype), convert::fp8::as_16_bit(p, layout), context);
  };
  Variant v_rows = convert::v_rows::variant(choose_for_rows);
  v_rows.inner = [](const ForwardProblem& p, const PlanContext& context) {
    return by_inner("V in rows", convert::v_rows::in_rows(p), context);
  };
  return {std::move(converted), std::move(v_rows)};
}

std::vector<Variant> hopper_forward(const Variant& any_cache) {
  std::vector<Variant> throughput = sm90::throughput::variants(choose_sm90_tile);
  Variant &plain = throughput[0], &paged = throughput[1], &options = throughput[2];
  plain.declines = sm90_throughput_declines;
  options.declines = sm90_options_declines;
  paged = unless_refused(declining(std::move(paged), sm90_paged_declines), any_cache);
  const auto unless_fastest = [next = plain](LatencyKernel kernel) {
    return [next, kernel](const ForwardProblem& p, const PlanContext& context) {
      return sm90_latency_declines(p, context, next, kernel);
    };
  };
  std::vector<Variant> all = {
      declining(sm90::latency::variant(), unless_fastest(LatencyKernel::latency)),
      declining(sm90::latency_wide::variant(), unless_fastest(LatencyKernel::wide))};
  all.insert(all.end(), throughput.begin(), throughput.end());
  std::vector<Variant> fp8 = cuda::forward_fp8_sm90::throughput::variants();
  fp8[0].declines = sm90_fp8_192x64_declines;
  for (Variant& variant : fp8) all.push_back(declining(std::move(variant), fp8_declines));
  return all;
}

std::vector<Variant> ampere_forward(const Variant& any_cache) {
  std::vector<Variant> all = sm80::throughput::variants();
  for (Variant& variant : all) {
    const std::string_view own = variant_part(variant.name);
    if (own == "fp8") variant = declining(std::move(variant), fp8_declines);
    if (own == "paged") {
      variant = unless_refused(declining(std::move(variant), sm80_paged_declines), any_cache);
    }
  }
  return all;
}

std::vector<Variant> backward() {
  const Variant any = cuda::backward_sm80::general::variant();
  std::vector<Variant> all = cuda::backward_sm90::throughput::variants();
  all.front().backward.declines = sm90_split_declines;
  all.push_back(cuda::backward_sm90::wide::variant());
  for (Variant& variant : all) variant = backward_for_any_pointers(std::move(variant), any);
  all.push_back(any);
  return all;
}

}  // namespace

std::vector<Variant> cuda_variants() {
  const Variant any_cache = cuda::decode_sm80::split_kv::variant();
  const std::vector<Variant> ampere = ampere_forward(any_cache);

  std::vector<Variant> table;
  const auto add = [&](std::vector<Variant> variants) {
    std::move(variants.begin(), variants.end(), std::back_inserter(table));
  };
  add({declining(for_any_pointers(unless_refused(cuda::mla_sm90::latent::variant(), any_cache),
                                  any_cache, is_latent),
                 sm90_latent_declines)});
  add({declining(cuda::decode_sm90::stream_kv::variant(), sm90_decode_declines)});
  add(hopper_forward(any_cache));
  add(cuda::forward_fp8_sm89::throughput::variants());
  add({declining(sm80::latency::variant(), sm80_latency_declines)});
  add(ampere);
  add({any_cache});
  add(converting());
  add(backward());
  add(cuda::ladder::variants());
  for (Variant& variant : table) {
    const bool reads_pages = variant.supports.features.has(Feature::page_table);
    const bool reads_biases = variant.supports.features.has(Feature::bias);
    bool (*takes)(const Arguments&) = is_aligned;
    if (reads_biases) takes = is_bias_aligned;
    if (variant.wants_alignment && variant.plan)
      variant = for_any_pointers(std::move(variant), reads_pages ? any_cache : ampere[0], takes);
  }
  return table;
}

}  // namespace flashcore

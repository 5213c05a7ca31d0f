// What a kernel computes, as data: a closed world. What is not here is refused, in the same words for every kernel
// (refusal.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "kernel/plan_context.hpp"
#include "problem/backward.hpp"
#include "problem/features.hpp"
#include "problem/problem.hpp"

namespace flashcore {

class Dtypes {
 public:
  constexpr Dtypes() = default;
  constexpr Dtypes(std::initializer_list<DType> all) {
    for (const DType one : all) bits_ |= bit(one);
  }
  constexpr bool has(DType one) const { return (bits_ & bit(one)) != 0; }

 private:
  static constexpr uint32_t bit(DType one) { return uint32_t{1} << static_cast<int>(one); }
  uint32_t bits_ = 0;
};

inline constexpr Dtypes kHalf = {DType::f16, DType::bf16};
inline constexpr Dtypes kFloats = {DType::f16, DType::bf16, DType::f32};
inline constexpr Dtypes kFp8 = {DType::f8e4m3, DType::f8e5m2};
inline constexpr Dtypes kUpTo32Bits = {DType::f16, DType::bf16, DType::f32, DType::f8e4m3,
                                       DType::f8e5m2};
inline constexpr Dtypes kAnyDtype = {DType::f16,    DType::bf16,   DType::f32,
                                     DType::f8e4m3, DType::f8e5m2, DType::f64};

// Multiples of `step` in [least, most].
struct HeadDims {
  int64_t most = std::numeric_limits<int64_t>::max();
  int64_t step = 1;
  int64_t least = 0;
};

// Compute capabilities, as 86 for 8.6; kernels of CPUs have none.
struct Arch {
  int32_t least = 0;
  int32_t most = std::numeric_limits<int32_t>::max();
};

template <class AnyProblem>
struct SupportsOf {
  Features features = {};
  Features needs = {};      // one of these, where it is not empty
  Dtypes q = {};            // of K and V, too, but for what the features say
  Dtypes o = {};            // where it may be of another type than Q
  HeadDims head_dims = {};  // of Q and of V
  int64_t rows_below =
      std::numeric_limits<int64_t>::max();  // of Q and of K, in an entry or in all that are packed
  Arch arch = {};
  // What is not a set: one sentence, or empty. Called only for problems that the rest takes.
  std::function<std::string(const AnyProblem&, const PlanContext&)> extra = {};
};
using Supports = SupportsOf<ForwardProblem>;
using BackwardSupports = SupportsOf<BackwardProblem>;

// Everything that the operator has.
template <class AnyProblem>
SupportsOf<AnyProblem> everything() {
  return {.features = Features::all(), .q = kAnyDtype, .o = kAnyDtype};
}

// Returns what a kernel supports, without what `more` refuses.
template <class AnyProblem, class Extra>
SupportsOf<AnyProblem> but_not(const SupportsOf<AnyProblem>& supports, Extra more) {
  const auto both = [own = supports.extra, more = std::move(more)](const AnyProblem& problem,
                                                                   const PlanContext& context) {
    std::string refusal = own ? own(problem, context) : std::string();
    return refusal.empty() ? more(problem, context) : refusal;
  };
  return {.features = supports.features,
          .needs = supports.needs,
          .q = supports.q,
          .o = supports.o,
          .head_dims = supports.head_dims,
          .rows_below = supports.rows_below,
          .arch = supports.arch,
          .extra = both};
}

// A sentence where Q or K has as many rows, in an entry or in all that are packed.
std::string refuse_rows(const ForwardProblem& p, int64_t below);

// One sentence why a kernel that was compiled for `targets`, as in device_code.hpp, does not compute a problem on
// the GPU of the context, or empty.
std::string refusal_on_gpu(const Supports& supports, std::string_view targets,
                           const ForwardProblem& problem, const PlanContext& context);
std::string refusal_on_gpu(const BackwardSupports& supports, std::string_view targets,
                           const BackwardProblem& problem, const PlanContext& context);

}  // namespace flashcore

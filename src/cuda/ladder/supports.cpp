#include "cuda/ladder/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "problem/sizes.hpp"

namespace flashcore::cuda::ladder {
namespace {

constexpr int64_t kLargestExtent = int64_t{1} << 30;  // tiles and rows are counted in an int
constexpr int64_t kMostPairs = int64_t{1} << 48;      // of query and key: S, in whole tiles

std::string refuses_shape(const ForwardProblem& p) {
  const std::pair<std::string_view, int64_t> extents[] = {{"batch", p.batch},
                                                          {"heads", p.heads_q},
                                                          {"seqlen_q", p.seqlen_q},
                                                          {"seqlen_kv", p.seqlen_kv}};
  for (const auto& [name, extent] : extents) {
    if (extent > kLargestExtent) {
      return fmt::format("{}: is {}, wanted at most 2^30", name, extent);
    }
  }
  int64_t pairs = 1;
  for (const auto& [name, extent] : extents)
    pairs = product_of({pairs, std::max<int64_t>(extent, 1)});
  if (pairs > kMostPairs) {
    return fmt::format(
        "q: has {} heads in each of {} sequences, with {} queries and {} keys, wanted at most "
        "2^48 pairs",
        p.heads_q, p.batch, p.seqlen_q, p.seqlen_kv);
  }
  return {};
}

std::string refuses_scales(const ForwardProblem& p) {
  if (p.dtype != DType::f8e4m3) return {};
  const std::pair<std::string_view, bool> scales[] = {{"q_scale", p.q_scale.present},
                                                      {"k_scale", p.k_scale.present},
                                                      {"v_scale", p.v_scale.present}};
  for (const auto& [name, present] : scales) {
    if (!present) return fmt::format("{}: is not given, wanted one scale per head", name);
  }
  return {};
}

}  // namespace

Supports supports(DType input, Arch arch, bool tensor_maps) {
  using enum Feature;
  return {.features = (tensor_maps ? unmapped_o : feature_sets::kUnmapped) |
                      Features{scale_not_positive, o_apart},
          .q = {input},
          .o = {DType::f16},
          .head_dims = {.most = 128, .step = 64, .least = 64},
          .arch = arch,
          .extra = [](const ForwardProblem& p, const PlanContext&) {
            std::string refusal = refuses_shape(p);
            return refusal.empty() ? refuses_scales(p) : refusal;
          }};
}

}  // namespace flashcore::cuda::ladder

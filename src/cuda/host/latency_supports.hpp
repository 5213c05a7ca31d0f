// What latency kernels compute on any GPU. Needs no CUDA header.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "cuda/attention/kv_range.hpp"
#include "kernel/supports.hpp"

namespace flashcore::cuda::host {

// `unmapped`: strides of 0 or less, which kernels that read by tensor maps do not take.
inline Supports latency_supports(Arch arch, Features unmapped) {
  return {.features = feature_sets::kShapes | unmapped,
          .q = kHalf,
          .head_dims = {.most = 128, .step = 8, .least = 8},
          .rows_below = attention::kMostRows,
          .arch = arch,
          .extra = [](const ForwardProblem& p, const PlanContext&) -> std::string {
            constexpr int64_t kMostBlocks = 65535;  // in a grid's y and z
            for (const auto& [name, count] :
                 {std::pair{"batch", p.batch}, std::pair{"heads", p.heads_q}}) {
              if (count <= kMostBlocks) continue;
              return fmt::format("q: {} is {}, wanted at most {}", name, count, kMostBlocks);
            }
            return {};
          }};
}

}  // namespace flashcore::cuda::host

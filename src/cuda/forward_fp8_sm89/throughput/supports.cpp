#include "cuda/forward_fp8_sm89/throughput/supports.hpp"

#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/host/launch_limits.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

Supports supports() {
  using enum Feature;
  return {.features = feature_sets::kShapes | feature_sets::kUnmapped |
                      Features{sinks, softcap, scale_not_positive, o_apart},
          .q = {DType::f8e4m3},
          .o = kFloats,
          .head_dims = {.most = kLargestHeadDim, .step = kChunkBytes, .least = kChunkBytes},
          .rows_below = attention::kMostRows,
          .arch = {.least = 89},  // the first with e4m3 products
          .extra = [](const ForwardProblem& p, const PlanContext&) {
            return host::refuse_tiles(p, kBlockQ);
          }};
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput

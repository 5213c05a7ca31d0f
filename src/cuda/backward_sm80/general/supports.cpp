#include "cuda/backward_sm80/general/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cuda/attention/kv_range.hpp"
#include "cuda/backward_sm80/general/config.hpp"
#include "cuda/host/launch_limits.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm80::general {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // blocks of a launch
constexpr int kRowsPerBlock = 8;                                // of rows.cu

static_assert(config_index(true, kLargestHeadDim) >= 0 &&
              config_index(false, kLargestHeadDim) >= 0);

int64_t tiles(int64_t rows, int block) { return (rows + block - 1) / block; }

// Tiles of an output that blocks count in 32 bits.
std::string refuse_count(std::string_view name, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t blocks = product_of({a, b, c, d});
  if (blocks <= kMost) return {};
  return fmt::format("{}: makes {} tiles, wanted at most {}", name,
                     blocks == kTooLarge ? "too many" : std::to_string(blocks), kMost);
}

std::string refuse_sizes(const BackwardProblem& problem, const PlanContext&) {
  const ForwardProblem& p = problem.forward;
  const int64_t head_dim = std::max(p.head_dim_qk, p.head_dim_v);
  const int index = config_index(computes_in_fp32(problem), head_dim);
  const Config& config = kConfigs[static_cast<size_t>(index)];
  const int64_t rows = p.packed ? p.total_q : p.seqlen_q, batch = p.packed ? 1 : p.batch;
  if (std::string refusal = refuse_count("q", batch, p.heads_q, tiles(rows, kRowsPerBlock), 1);
      !refusal.empty()) {
    return refusal;
  }
  if (std::string refusal = host::refuse_tiles(p, config.block_x()); !refusal.empty()) {
    return refusal;
  }
  const int64_t key_rows = p.packed ? std::max(p.total_kv, p.seqlen_kv) : p.seqlen_kv;
  if (std::string refusal =
          refuse_count("k", p.batch, p.heads_kv, tiles(key_rows, kRowsPerBlock), 1);
      !refusal.empty()) {
    return refusal;
  }
  if (!problem.d_bias.present) return {};
  const int64_t* const extents = problem.d_bias_extents;
  const Config bias = config_of(index, Features::all);
  return refuse_count("d_bias", extents[0], extents[1], tiles(extents[2], bias.block_x()),
                      tiles(extents[3], bias.block_y));
}

}  // namespace

bool computes_in_fp32(const BackwardProblem& problem) {
  return problem.forward.dtype == DType::f32 || problem.forward.o_dtype != problem.forward.dtype;
}

BackwardSupports supports() {
  using enum Feature;
  return {.features = feature_sets::kShapes | feature_sets::kScores | feature_sets::kLayouts |
                      feature_sets::kLargest |
                      flashcore::Features{dropout, dropout_state, o_apart, gradients_apart},
          .q = kFloats,
          .o = kFloats,
          .head_dims = {.most = kLargestHeadDim},
          .rows_below = attention::kMostRows,
          .arch = {.least = 80},
          .extra = refuse_sizes};
}

}  // namespace flashcore::cuda::backward_sm80::general

#include "cuda/backward_sm90/common/supports.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90 {
namespace {

int64_t rows_of(const ForwardProblem& p, bool queries) {
  if (p.packed) return queries ? p.total_q : p.total_kv;
  return queries ? p.seqlen_q : p.seqlen_kv;
}

// Rows of a head's tiles over all sequences; a packed batch has the slots of packed_tiles.hpp.
int64_t tile_rows(const ForwardProblem& p, int64_t rows, int64_t block) {
  if (p.packed) return product_of({attention::packed_slots(rows, p.batch, block), block});
  return product_of({p.batch, (rows + block - 1) / block, block});
}

// Sizes, except the sizes of heads and launches.
std::string refuse_empty(const BackwardProblem& problem, const PlanContext&) {
  const ForwardProblem& p = problem.forward;
  const int64_t rows_q = rows_of(p, true), rows_kv = rows_of(p, false);
  if (p.batch == 0 || p.heads_q == 0 || rows_q == 0) {
    return fmt::format("q: has {} sequences of {} heads and {} rows, wanted at least 1 of each",
                       p.batch, p.heads_q, rows_q);
  }
  if (p.heads_kv == 0 || rows_kv == 0) {
    return fmt::format("k: has {} heads of {} rows, wanted at least 1 of each", p.heads_kv,
                       rows_kv);
  }
  return {};
}

}  // namespace

int64_t query_rows(const ForwardProblem& p, int64_t block) {
  return tile_rows(p, rows_of(p, true), block);
}
int64_t key_rows(const ForwardProblem& p, int64_t block) {
  return tile_rows(p, rows_of(p, false), block);
}

BackwardSupports common_supports(HeadDims head_dims) {
  using enum Feature;
  return {.features =
              feature_sets::kShapes | feature_sets::kLargest | Features{sinks, softcap, unmapped_o},
          .q = kHalf,
          .head_dims = head_dims,
          .rows_below = attention::kMostRows,
          .arch = {90, 90},
          .extra = refuse_empty};
}

}  // namespace flashcore::cuda::backward_sm90

#include "cuda/convert/v_rows/supports.hpp"

#include <fmt/format.h>

#include <limits>

#include "cuda/tile/v_tile.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::convert::v_rows {
namespace {

using tile::VTile;

constexpr int64_t kAlignment = 256;
static_assert(VTile::kColumns == kColumnBlock);

int64_t up_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t pitch_of(const ForwardProblem& p) { return up_to(p.head_dim_v, VTile::kChunk); }

int64_t rows_bytes(const ForwardProblem& p) {
  const int64_t bytes = product_of({p.batch, p.heads_kv, p.seqlen_kv, pitch_of(p)});
  return bytes >= kTooLarge - kAlignment ? kTooLarge : up_to(bytes, kAlignment);
}

ForwardProblem in_rows(const ForwardProblem& p) {
  ForwardProblem inner = p;
  inner.v_transposed = false;
  inner.v_columns = 0;
  const int64_t pitch = pitch_of(p), head = product_of({p.seqlen_kv, pitch});
  inner.v = {.batch = product_of({p.heads_kv, head}), .head = head, .row = pitch};
  return inner;
}

Blocks blocks_of(const ForwardProblem& p) {
  const int64_t columns = (p.seqlen_kv + VTile::kColumns - 1) / VTile::kColumns;
  const int64_t dims = (p.head_dim_v + VTile::kDims - 1) / VTile::kDims;
  return {columns, dims, product_of({p.batch, p.heads_kv, columns, dims})};
}

Supports supports() {
  Supports supports = everything<ForwardProblem>();
  supports.needs = Feature::v_transposed;
  supports.extra = [](const ForwardProblem& p, const PlanContext&) -> std::string {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (blocks_of(p).all <= kMost && rows_bytes(p) != kTooLarge) return {};
    return fmt::format("v: has {} heads of {} rows of {}, wanted at most {} blocks of {} x {}",
                       product_of({p.batch, p.heads_kv}), p.seqlen_kv, p.head_dim_v, kMost,
                       VTile::kColumns, VTile::kDims);
  };
  return supports;
}

}  // namespace flashcore::cuda::convert::v_rows

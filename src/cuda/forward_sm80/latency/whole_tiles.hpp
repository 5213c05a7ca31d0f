// Decides whether forward_sm80_latency may copy whole tiles without a test, and computes their strides.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>

#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm80/latency/keys.hpp"
#include "cuda/forward_sm80/latency/params.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm80::latency {

// Returns a tensor's strides in pieces of 16 bytes, if 32 bits hold every offset in it.
inline std::optional<Pieces> pieces_of(const RowStrides& stride, int64_t batch, int64_t heads,
                                       int64_t rows, int64_t head_dim) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  Pieces pieces{};
  int64_t last = head_dim / kPieceElements;
  for (const auto& [distance, extent, to] :
       {std::tuple{stride.batch, batch, &pieces.batch},
        std::tuple{stride.head, heads, &pieces.head}, std::tuple{stride.row, rows, &pieces.row}}) {
    if (extent < 2) continue;  // unused, so it may be anything
    const int64_t apart = distance / kPieceElements;
    if (apart < 0 || apart > (kMost - last) / (extent - 1)) return std::nullopt;
    *to = static_cast<uint32_t>(apart);
    last += apart * (extent - 1);
  }
  return pieces;
}

// Sets the strides. Returns false if a tile may not be whole or
// an offset does not fit. `params.problem` must have been set.
inline bool set_whole_params(Params& params, const ForwardProblem& p, const Config& config) {
  if (params.problem.varies || !params.problem.fills ||
      !tiles_are_whole(config, params.problem.limits, p.seqlen_q)) {
    return false;
  }
  const auto q = pieces_of(p.q, p.batch, p.heads_q, p.seqlen_q, p.head_dim_qk);
  const auto k = pieces_of(p.k, p.batch, p.heads_kv, p.seqlen_kv, p.head_dim_qk);
  const auto v = pieces_of(p.v, p.batch, p.heads_kv, p.seqlen_kv, p.head_dim_v);
  if (!q || !k || !v) return false;
  params.whole = {*q, *k, *v};
  return true;
}

}  // namespace flashcore::cuda::forward_sm80::latency

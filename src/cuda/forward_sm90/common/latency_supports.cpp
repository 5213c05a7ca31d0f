#include "cuda/forward_sm90/common/latency_supports.hpp"

#include "cuda/attention/latency/key_tiles.hpp"
#include "cuda/host/latency_supports.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::forward_sm90 {
namespace {

using attention::latency::TileBounds;

constexpr int32_t kHopper = 90;  // code for 9.0a runs nowhere else

// Returns whether every query sees every key and tiles of keys are full: no tile needs a mask.
bool is_whole(const ForwardProblem& p) {
  return !entries_vary(p) && p.band.unlimited() && p.seqlen_kv > 0 &&
         p.seqlen_kv % attention::latency::kBlockKv == 0;
}

}  // namespace

Supports latency_supports() {
  return host::latency_supports({kHopper, kHopper}, Feature::unmapped_o);
}

TileBounds tile_bounds_of(const ForwardProblem& p) {
  if (is_whole(p)) return TileBounds::none;
  ForwardProblem open = p;
  open.band.right = Band::kUnlimited;
  return is_whole(open) ? TileBounds::causal_only : TileBounds::checked;
}

std::string_view tile_bounds_name(TileBounds bounds) {
  return bounds == TileBounds::checked       ? "checked"
         : bounds == TileBounds::causal_only ? "causal_only"
                                             : "none";
}

}  // namespace flashcore::cuda::forward_sm90

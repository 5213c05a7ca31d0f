#include "cuda/mla_sm90/latent/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "cuda/attention/decode/work.hpp"
#include "cuda/host/launch_limits.hpp"
#include "cuda/mla_sm90/latent/config.hpp"
#include "cuda/mla_sm90/latent/schedule.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::mla_sm90::latent {
namespace {

constexpr int64_t kMostTiles = 128;  // of rows: each reads the keys again

using attention::decode::divide_up;

std::string refuse_values(const ForwardProblem& p) {
  for (const auto& [name, head_dim, wanted] :
       {std::tuple{"q", p.head_dim_qk, kHeadDimQk}, {"v", p.head_dim_v, kHeadDimV}}) {
    if (head_dim != wanted) {
      return fmt::format("{}: head dimension is {}, wanted {}", name, head_dim, wanted);
    }
  }
  if (p.heads_kv != 1) return fmt::format("k: has {} heads, wanted 1", p.heads_kv);
  for (const auto& [name, extent, of_v, of_k] :
       {std::tuple{"batch", lead_of_keys(p), p.v.batch, p.k.batch},
        {"row", rows_of_keys(p), p.v.row, p.k.row}}) {
    if (extent > 1 && of_v != of_k) {
      return fmt::format("v: {} stride is {}, wanted k's {}, because v is k's first columns", name,
                         of_v, of_k);
    }
  }
  return {};
}

std::string refuse_sizes(const ForwardProblem& p, const PlanContext& /*context*/) {
  if (std::string refusal = refuse_values(p); !refusal.empty()) return refusal;
  if (lead_of_keys(p) < 1) {
    return fmt::format("k: has {} pages, wanted 1 or more", lead_of_keys(p));
  }
  if (rows_of_keys(p) < 1) return "k: has 0 rows, wanted 1 or more";
  if (p.paging.present && p.paging.page_size % kGroupRows != 0) {
    return fmt::format("k: page size is {}, wanted a multiple of {}", p.paging.page_size,
                       kGroupRows);
  }
  if (std::string refusal = host::refuse_decode_rows(p); !refusal.empty()) return refusal;
  if (tile_count(p) > kMostTiles) {
    return fmt::format("q: has {} tiles of {} heads per sequence, wanted at most {}", tile_count(p),
                       kRows, kMostTiles);
  }
  const int64_t positions = product_of({p.batch, int64_t{tiles_of_keys(p)} + kEndTiles});
  if (positions > kMostPositions) {
    return fmt::format("k: has {} pieces of {} keys, wanted at most {}", positions, kTileKeys,
                       kMostPositions);
  }
  return {};
}

}  // namespace

int64_t tiles_of_query(const ForwardProblem& p) { return divide_up(p.heads_q, kRows); }

int64_t tile_count(const ForwardProblem& p) { return product_of({p.seqlen_q, tiles_of_query(p)}); }

int tiles_of_keys(const ForwardProblem& p) {
  return static_cast<int>(divide_up(p.seqlen_kv, kTileKeys));
}

int64_t share_count(const ForwardProblem& p, const PlanContext& context) {
  const int64_t tiles =
      std::max<int64_t>(1, tile_count(p));  // a packed batch may have max_seqlen_q 0
  const int64_t most = int64_t{context.device.multiprocessors} / tiles;
  return std::max<int64_t>(1, std::min(most, product_of({p.batch, int64_t{tiles_of_keys(p)}})));
}

bool has_joins(const ForwardProblem& p, const PlanContext& context) {
  if (entries_vary(p) || p.paging.flat || p.cache_leftpad.present) return true;
  const attention::Entry entry{.len_q = static_cast<int>(p.seqlen_q),
                               .len_kv = static_cast<int>(p.seqlen_kv),
                               .rows_q = static_cast<int>(p.seqlen_q),
                               .offset = common_offset(p)};
  const attention::decode::SeenKeys seen = attention::decode::seen_keys(entry, p.band, 1);
  if (seen.end <= seen.begin) return true;
  const int tiles = quotient_up(seen.end, kTileKeys) - seen.begin / kTileKeys;
  if (context.batch_invariant) return own_parts(tiles) > 1;
  const auto batch = static_cast<int>(p.batch);
  return cutting(tiles * batch, batch, tiles, static_cast<int>(share_count(p, context))).layout !=
         Layout::whole;
}

Supports supports() {
  using enum Feature;
  return {.features = feature_sets::kShapes | feature_sets::kPages |
                      Features{sinks, softcap, o_apart, cache_leftpad, tree_mask},
          .q = kHalf,
          .o = kFloats,
          .rows_below = attention::kMostRows,
          .arch = {90, 90},
          .extra = refuse_sizes};
}

}  // namespace flashcore::cuda::mla_sm90::latent

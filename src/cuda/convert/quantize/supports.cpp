#include "cuda/convert/quantize/supports.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/device_code.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::convert::quantize {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 30;          // counted in 32 bits, with some to spare
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a launch
constexpr int64_t kMostGroups = 256;                     // of a tile
// A tile that is read twice stays in the first-level cache.
constexpr int64_t kElementsPerTile = 16384;
constexpr int64_t kLargestTile = 65536;

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Cut cut_of(const QuantizeProblem& p) {
  Cut cut;
  cut.block = std::max<int64_t>(1, p.scale_blocks > 1 ? std::min(p.scale_block, p.rows) : p.rows);
  const int64_t rows_per_tile =
      std::clamp<int64_t>(kElementsPerTile / std::max<int64_t>(p.head_dim, 1), 1, kMostGroups);
  const bool has_own_scales = p.scale_batches == p.batch && p.scale_heads == p.heads;
  cut.in_tiles = has_own_scales && cut.block * p.head_dim <= kLargestTile;
  if (cut.in_tiles) {
    cut.tile_rows = std::max(cut.block, rows_per_tile / cut.block * cut.block);
    cut.span = cut.tile_rows;
  } else {
    cut.tile_rows = rows_per_tile;
    cut.span = cut.block;
  }
  cut.tiles_per_span = divide_up(cut.span, cut.tile_rows);
  if (p.head_dim > 0) cut.tiles = divide_up(p.rows, cut.span) * cut.tiles_per_span;
  return cut;
}

std::string refusal(const QuantizeProblem& p, const DeviceInfo& device, std::string_view targets) {
  if (std::string sentence = refuse_code(targets, device.compute_capability); !sentence.empty()) {
    return sentence;
  }
  if (p.rows > kMostRows) {
    return fmt::format("x: has {} rows per sequence, wanted at most {}", p.rows, kMostRows);
  }
  for (const int64_t blocks : {product_of({cut_of(p).tiles, p.heads, p.batch}), p.scales(),
                               p.has_mean ? product_of({p.head_dim, p.heads, p.batch}) : 0}) {
    if (blocks > kMostBlocks) {
      return fmt::format("x: needs {} blocks in a launch, wanted at most {}", blocks, kMostBlocks);
    }
  }
  return {};
}

}  // namespace flashcore::cuda::convert::quantize

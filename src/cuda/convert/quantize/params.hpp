// The parameters of a launch: the run's strides, and the division of its rows into tiles.
#pragma once

#include <cstdint>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/inputs.hpp"

namespace flashcore::cuda::convert::quantize {

inline constexpr int kThreads = 256;
inline constexpr int kMostGroups = 256;  // that a block finds the scales of
inline constexpr int kChunk = 8;         // elements that a thread handles at once
// The kernel that finds means. A block has this many columns, 32 bytes of 16-bit elements.
inline constexpr int kMeanThreads = 512, kMeanColumns = 2 * kChunk;

enum class Input { f32, f16, bf16 };

// Rows of a sequence are divided into spans, and spans into tiles of tile_rows rows: a block takes a
// tile of one head. A span is a group of scales or, if a block finds the scales of its own rows, a tile.
struct Params {
  const void* x = nullptr;
  uint8_t* out = nullptr;
  float* scale = nullptr;
  float* mean = nullptr;  // null: none
  const int32_t* cu_seqlens = nullptr;
  const int32_t* seqlens = nullptr;
  int64_t cu_seqlens_stride = 0, seqlens_stride = 0;
  attention::RowStride x_stride, out_stride;
  attention::RowStride scale_stride;  // row: between blocks; 0 if one scale serves all
  int64_t mean_batch = 0, mean_head = 0;
  int64_t total = 0;  // packed: rows of all sequences
  int32_t batch = 0, heads = 0, rows = 0, head_dim = 0;
  int32_t scale_batches = 0, scale_heads = 0, scale_blocks = 0;
  int32_t block = 1;  // rows per scale, at most all
  attention::Divisor by_block{};
  int32_t span = 1, tile_rows = 1, tiles_per_span = 1, tiles = 0;  // `tiles`: per sequence
  Input input = Input::f32;
  bool e5m2 = false;
  bool whole_chunks = false;  // rows of x and out are aligned chunks of eight elements
  int32_t lanes = 1;          // adjacent threads per row, 1 to 32
};

}  // namespace flashcore::cuda::convert::quantize

// Tensor maps for the tensor memory accelerator: shape, strides, box and swizzle of a global
// tensor.
//
// The encoder is a driver function, looked up at run time, so nothing links against libcuda.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashcore::cuda::host {

// A [batch, head, row, column] tensor with contiguous columns, in elements.
struct TensorLayout {
  int64_t batch, heads, rows, columns;
  int64_t batch_stride, head_stride, row_stride;
};

// Fills `map` for boxes of box_rows x box_columns (1..256 each) of one (batch, head), coordinates
// in the order column, row, head, batch. box_columns * element bytes is the swizzle's width: 128 or
// 64 bytes. Rows and columns outside the tensor are read as zero and not written.
//
// The base and every used stride must be multiples of 16 bytes and no extent may be 0;
// otherwise, or if the driver has no encoder, an error is returned and `map` must not be used.
cudaError_t encode_tensor_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                              const TensorLayout& layout, int box_rows, int box_columns);

// Encodes with coordinates in the order column, row, panel, head, batch. whole: the columns
// are a whole number of panels of `panel_columns`, a box has all of them, contiguous in
// shared memory, and columns count within a panel; otherwise a box is one panel wide, and
// the panel is 0. For data that is read once: L2 fetches no more than a line.
cudaError_t encode_panel_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                             const TensorLayout& layout, int box_rows, int panel_columns,
                             bool whole);

// Boxes of tile::GroupedTile, of 16-bit elements in panels of 64 columns. Rows are whole groups of 8.
//
// Encodes with coordinates in the order column of a panel, row of 8, panel, group, lead, which
// counts batch entries and heads: it has an extent, and a stride in elements. A box has all columns
// of box_rows rows, and zeros up to `panels` panels. Columns are whole panels.
cudaError_t encode_group_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                             const TensorLayout& layout, int64_t leads, int64_t lead_stride,
                             int box_rows, int panels);
// Encodes with coordinates in the order column, row of 8, group, head, batch. A box is a
// panel of 8 rows.
cudaError_t encode_group_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                             const TensorLayout& layout);

}  // namespace flashcore::cuda::host

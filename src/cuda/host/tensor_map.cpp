// The driver's tensor map encoder.
#include "cuda/host/tensor_map.hpp"

#include <cudaTypedefs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/host/driver_entry.hpp"

namespace flashcore::cuda::host {
namespace {

int64_t element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return 4;
    default:
      return 0;
  }
}

// One dimension of a map: how many elements, how far apart in bytes (the innermost: an element's
// bytes), how many of them in a box.
struct Dimension {
  int64_t extent, stride;
  int box;
};

template <std::size_t kRank>
cudaError_t encode(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                   const std::array<Dimension, kRank>& dimensions,
                   CUtensorMapL2promotion promotion) {
  static DriverEntry<PFN_cuTensorMapEncodeTiled_v12000> encoder("cuTensorMapEncodeTiled", 12000);
  PFN_cuTensorMapEncodeTiled_v12000 encode_tiled = nullptr;
  if (const cudaError_t error = encoder.get(encode_tiled); error != cudaSuccess) return error;
  const int64_t span = dimensions[0].box * dimensions[0].stride;
  if (span != 128 && span != 64) return cudaErrorInvalidValue;
  // The stride between columns is not used: any multiple of 16 will do.
  const int64_t row_bytes = (dimensions[0].extent * dimensions[0].stride + 15) / 16 * 16;
  cuuint64_t extent[kRank], stride[kRank - 1];
  cuuint32_t box[kRank], element_stride[kRank];
  for (std::size_t i = 0; i < kRank; ++i) {
    const Dimension& d = dimensions[i];
    if (d.extent <= 0) return cudaErrorInvalidValue;
    extent[i] = static_cast<cuuint64_t>(d.extent);
    box[i] = static_cast<cuuint32_t>(d.box);
    element_stride[i] = 1;
    if (i == 0) continue;
    // The stride of an extent of 1 is never used, and may then be anything.
    const int64_t used = d.extent == 1 ? row_bytes : d.stride;
    if (used < 0 || used % 16 != 0) return cudaErrorInvalidValue;
    stride[i - 1] = static_cast<cuuint64_t>(used);
  }
  const CUresult result =
      encode_tiled(&map, type, kRank, const_cast<void*>(base), extent, stride, box, element_stride,
                   CU_TENSOR_MAP_INTERLEAVE_NONE,
                   span == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B, promotion,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t encode_tensor_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                              const TensorLayout& layout, int box_rows, int box_columns) {
  const int64_t bytes = element_bytes(type);
  return encode<4>(map, type, base,
                   {{{layout.columns, bytes, box_columns},
                     {layout.rows, layout.row_stride * bytes, box_rows},
                     {layout.heads, layout.head_stride * bytes, 1},
                     {layout.batch, layout.batch_stride * bytes, 1}}},
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

cudaError_t encode_panel_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                             const TensorLayout& layout, int box_rows, int panel_columns,
                             bool whole) {
  const int64_t bytes = element_bytes(type);
  const int64_t panels = whole ? layout.columns / panel_columns : 1;
  if (whole && panels * panel_columns != layout.columns) return cudaErrorInvalidValue;
  return encode<5>(map, type, base,
                   {{{whole ? panel_columns : layout.columns, bytes, panel_columns},
                     {layout.rows, layout.row_stride * bytes, box_rows},
                     {panels, panel_columns * bytes, static_cast<int>(panels)},
                     {layout.heads, layout.head_stride * bytes, 1},
                     {layout.batch, layout.batch_stride * bytes, 1}}},
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

constexpr int kGroupColumns = 64, kGroupRows = 8;

cudaError_t encode_group_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                             const TensorLayout& layout, int64_t leads, int64_t lead_stride,
                             int box_rows, int panels) {
  const int64_t bytes = element_bytes(type), row_bytes = layout.row_stride * bytes;
  if (layout.columns % kGroupColumns != 0 || layout.rows % kGroupRows != 0) {
    return cudaErrorInvalidValue;
  }
  return encode<5>(map, type, base,
                   {{{kGroupColumns, bytes, kGroupColumns},
                     {kGroupRows, row_bytes, kGroupRows},
                     {layout.columns / kGroupColumns, kGroupColumns * bytes, panels},
                     {layout.rows / kGroupRows, kGroupRows * row_bytes, box_rows / kGroupRows},
                     {leads, lead_stride * bytes, 1}}},
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

cudaError_t encode_group_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                             const TensorLayout& layout) {
  const int64_t bytes = element_bytes(type), row_bytes = layout.row_stride * bytes;
  if (layout.rows % kGroupRows != 0) return cudaErrorInvalidValue;
  return encode<5>(map, type, base,
                   {{{layout.columns, bytes, kGroupColumns},
                     {kGroupRows, row_bytes, kGroupRows},
                     {layout.rows / kGroupRows, kGroupRows * row_bytes, 1},
                     {layout.heads, layout.head_stride * bytes, 1},
                     {layout.batch, layout.batch_stride * bytes, 1}}},
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

}  // namespace flashcore::cuda::host

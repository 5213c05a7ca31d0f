// The driver's tensor map encoder.
#include "cuda/host/tensor_map.hpp"

#include <cudaTypedefs.h>

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

}  // namespace

cudaError_t encode_tensor_map(CUtensorMap& map, CUtensorMapDataType type, const void* base,
                              const TensorLayout& layout, int box_rows, int box_columns) {
  static DriverEntry<PFN_cuTensorMapEncodeTiled_v12000> encoder("cuTensorMapEncodeTiled", 12000);
  PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  if (const cudaError_t error = encoder.get(encode); error != cudaSuccess) return error;

  const int64_t bytes = element_bytes(type);
  const int64_t span = box_columns * bytes;
  if (span != 128 && span != 64) return cudaErrorInvalidValue;
  const int64_t extents[4] = {layout.columns, layout.rows, layout.heads, layout.batch};
  const int64_t strides[3] = {layout.row_stride, layout.head_stride, layout.batch_stride};
  cuuint64_t extent[4];
  cuuint64_t stride[3];
  for (int i = 0; i < 4; ++i) {
    if (extents[i] <= 0) return cudaErrorInvalidValue;
    extent[i] = static_cast<cuuint64_t>(extents[i]);
  }
  for (int i = 0; i < 3; ++i) {
    // The stride of an extent of 1 is never used, and may then be anything.
    const int64_t used = extents[i + 1] == 1 ? layout.columns * bytes : strides[i] * bytes;
    if (used < 0 || used % 16 != 0) return cudaErrorInvalidValue;
    stride[i] = static_cast<cuuint64_t>(used);
  }
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(box_columns),
                             static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t element_stride[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, type, 4, const_cast<void*>(base), extent, stride, box, element_stride,
             CU_TENSOR_MAP_INTERLEAVE_NONE,
             span == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace flashcore::cuda::host

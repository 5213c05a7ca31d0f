// The driver's functions that are looked up by name: the encoder of tensor maps.
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace {

using flashcore::sim::TensorMap;

constexpr uint64_t kMostBox = 256, kMostExtent = uint64_t{1} << 32, kMostStride = uint64_t{1} << 40;

int64_t bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return 4;
  }
  return 0;
}

int span_of(CUtensorMapSwizzle swizzle) {
  constexpr int kSpans[] = {0, 32, 64, 128};
  return kSpans[swizzle];
}

// Like the driver: checks every rule of cuTensorMapEncodeTiled's page for tensors of rank 4 and 5.
CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* element_strides, CUtensorMapInterleave /*interleave*/,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion /*promotion*/,
                CUtensorMapFloatOOBfill /*fill*/) {
  const bool aligned =
      reinterpret_cast<uintptr_t>(map) % 64 == 0 && reinterpret_cast<uintptr_t>(base) % 16 == 0;
  if ((rank != 4 && rank != 5) || !aligned || base == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TensorMap made;
  made.magic = TensorMap::kMagic;
  made.base = static_cast<const unsigned char*>(base);
  made.span = span_of(swizzle);
  made.stride[0] = bytes_of(type);
  for (size_t i = 0; i < rank; ++i) {
    if (extents[i] == 0 || extents[i] > kMostExtent || box[i] == 0 || box[i] > kMostBox ||
        element_strides[i] != 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    made.extent[i] = static_cast<int64_t>(extents[i]);
    made.box[i] = static_cast<int>(box[i]);
    if (i == 0) continue;
    if (strides[i - 1] % 16 != 0 || strides[i - 1] >= kMostStride) return CUDA_ERROR_INVALID_VALUE;
    made.stride[i] = static_cast<int64_t>(strides[i - 1]);
  }
  if (made.row_bytes() % 16 != 0 ||
      (made.span != 0 && made.row_bytes() > static_cast<uint32_t>(made.span))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                             unsigned /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::string_view(name) == "cuTensorMapEncodeTiled";
  *function = known ? reinterpret_cast<void*>(&encode) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// Stands for the driver's header of this name: types of functions that are looked up by name.
#pragma once

#include <cuda.h>

using PFN_cuTensorMapEncodeTiled_v12000 = CUresult (*)(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
    const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);
using PFN_cuDeviceGet_v2000 = CUresult (*)(CUdevice* device, int ordinal);
using PFN_cuDevicePrimaryCtxGetState_v7000 = CUresult (*)(CUdevice device, unsigned* flags,
                                                          int* active);

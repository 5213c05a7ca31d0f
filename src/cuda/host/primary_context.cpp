#include "cuda/host/primary_context.hpp"

#include <cudaTypedefs.h>

#include "cuda/host/driver_entry.hpp"

namespace flashcore::cuda::host {

bool has_primary_context(int device) {
  static DriverEntry<PFN_cuDeviceGet_v2000> find_device("cuDeviceGet", 2000);
  static DriverEntry<PFN_cuDevicePrimaryCtxGetState_v7000> find_state("cuDevicePrimaryCtxGetState",
                                                                      7000);
  PFN_cuDeviceGet_v2000 get_device = nullptr;
  PFN_cuDevicePrimaryCtxGetState_v7000 get_state = nullptr;
  if (find_device.get(get_device) != cudaSuccess || find_state.get(get_state) != cudaSuccess) {
    return true;
  }
  CUdevice handle = 0;
  unsigned flags = 0;
  int active = 0;
  if (get_device(&handle, device) != CUDA_SUCCESS ||
      get_state(handle, &flags, &active) != CUDA_SUCCESS) {
    return true;
  }
  return active != 0;
}

}  // namespace flashcore::cuda::host

#include "evolve/runner/gpu_driver.hpp"

#include <dlfcn.h>

namespace flashcore::evolve {

bool load_gpu_driver(GpuDriver& driver, std::string& error) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    error = "there is no NVIDIA driver here (libcuda.so.1)";
    return false;
  }
  const auto find = [&](auto& function, const char* name) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr && error.empty()) {
      error = std::string("the NVIDIA driver has no ") + name +
              ", wanted the driver of CUDA 12.4 or later";
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  error.clear();
  find(driver.init, "cuInit");
  find(driver.device_get, "cuDeviceGet");
  find(driver.device_name, "cuDeviceGetName");
  find(driver.device_attribute, "cuDeviceGetAttribute");
  find(driver.primary_retain, "cuDevicePrimaryCtxRetain");
  find(driver.context_set, "cuCtxSetCurrent");
  find(driver.synchronize, "cuCtxSynchronize");
  find(driver.reset_persisting_l2, "cuCtxResetPersistingL2Cache");
  find(driver.module_load, "cuModuleLoad");
  find(driver.module_function, "cuModuleGetFunction");
  find(driver.module_global, "cuModuleGetGlobal_v2");
  find(driver.function_parameter, "cuFuncGetParamInfo");
  find(driver.function_attribute, "cuFuncGetAttribute");
  find(driver.function_set, "cuFuncSetAttribute");
  find(driver.allocate, "cuMemAlloc_v2");
  find(driver.copy_in, "cuMemcpyHtoD_v2");
  find(driver.copy_out, "cuMemcpyDtoH_v2");
  find(driver.set_bytes, "cuMemsetD8_v2");
  find(driver.stream_create, "cuStreamCreate");
  find(driver.event_create, "cuEventCreate");
  find(driver.event_record, "cuEventRecord");
  find(driver.event_synchronize, "cuEventSynchronize");
  find(driver.event_elapsed, "cuEventElapsedTime");
  find(driver.launch, "cuLaunchKernel");
  find(driver.encode_tiled, "cuTensorMapEncodeTiled");
  find(driver.error_name, "cuGetErrorName");
  return error.empty();
}

}  // namespace flashcore::evolve

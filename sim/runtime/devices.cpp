// The simulated GPUs, one of each generation that has kernels, and errors.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <string>

#include "engine/access.hpp"
#include "plan/device.hpp"
#include "runtime/state.hpp"

namespace {

struct SimulatedGpu {
  int compute_capability;
  size_t shared_memory_per_block;
};
constexpr std::array<SimulatedGpu, 3> kGpus{{{90, 227 * 1024}, {80, 163 * 1024}, {89, 99 * 1024}}};
// A small number, so that small problems also fill the GPU.
constexpr int kMultiprocessors = 8;
constexpr size_t kMemoryBytes = size_t{8} << 30;

bool exists(int device) { return device >= 0 && device < static_cast<int>(kGpus.size()); }
const SimulatedGpu& gpu(int device) { return kGpus[static_cast<size_t>(device)]; }

int& current_device() {
  thread_local int one = 0;
  return one;
}

cudaError_t fail(cudaError_t error) {
  flashcore::sim::last_error() = error;
  return error;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(kGpus.size());
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  *properties = {};
  properties->major = gpu(device).compute_capability / 10;
  properties->minor = gpu(device).compute_capability % 10;
  const std::string name = "simulated GPU of compute capability " +
                           std::to_string(properties->major) + "." +
                           std::to_string(properties->minor);
  std::copy(name.begin(), name.end(), properties->name);
  properties->multiProcessorCount = kMultiprocessors;
  properties->sharedMemPerBlockOptin = gpu(device).shared_memory_per_block;
  properties->totalGlobalMem = kMemoryBytes;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = gpu(device).compute_capability / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = gpu(device).compute_capability % 10;
      return cudaSuccess;
  }
  return fail(cudaErrorInvalidValue);
}

cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  current_device() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
  }
  return "unknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorLaunchFailure) return flashcore::sim::last_findings().c_str();
  return cudaGetErrorName(error);
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = flashcore::sim::last_error();
  flashcore::sim::last_error() = cudaSuccess;
  return error;
}

namespace flashcore::sim {

size_t shared_limit() { return gpu(current_device()).shared_memory_per_block; }

}  // namespace flashcore::sim

namespace flashcore {

std::vector<DeviceInfo> cuda_devices() {
  std::vector<DeviceInfo> found;
  for (int index = 0; exists(index); ++index) {
    cudaDeviceProp properties;
    (void)cudaGetDeviceProperties(&properties, index);
    DeviceInfo& info = found.emplace_back();
    info.device = {DeviceKind::sim, index};
    info.name = properties.name;
    info.compute_capability = gpu(index).compute_capability;
    info.multiprocessors = kMultiprocessors;
    info.shared_memory_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
    info.memory_bytes = static_cast<int64_t>(kMemoryBytes);
  }
  return found;
}

tuning::DeviceSpeed device_speed(const DeviceInfo& /*device*/) { return {}; }

}  // namespace flashcore

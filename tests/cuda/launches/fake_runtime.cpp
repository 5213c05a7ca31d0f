#include "fake_runtime.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace flashcore::fake {
namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};

struct State {
  Gpu gpu;
  std::map<const void*, std::string> names;  // of kernels, by their host function
  Configuration next;
  std::vector<Launch> launches;
  int device = 0;
  std::set<std::pair<const void*, int>> prepared;  // kernels that may have more than 48 KB, where
  uint64_t encoding = 1;                           // what is written into a map now
};

State& state() {
  static State one;  // kernels are registered before main
  return one;
}

int64_t volume(const dim3& d) { return int64_t{d.x} * d.y * d.z; }

// The kernels that are given tensor maps: in which argument, and how many they look at whatever the
// problem is. The ladder's are zeros without keys, and no block fetches them.
struct MapArgument {
  std::string_view kernel;  // part of its mangled name
  int argument;
  int count;
};
constexpr MapArgument kMapArguments[] = {{"forward_small_kernel", 1, 3},
                                         {"forward_medium_kernel", 1, 3},
                                         {"12forward_sm90", 0, 4},
                                         {"wgmma_tma_kernel", 0, 0}};

int64_t unwritten_maps(std::string_view kernel, void** arguments) {
  if (kernel.find("4Maps") == std::string_view::npos) return 0;  // the type of such an argument
  for (const MapArgument& maps : kMapArguments) {
    if (kernel.find(maps.kernel) == std::string_view::npos) continue;
    const auto* const first = static_cast<const CUtensorMap*>(arguments[maps.argument]);
    return std::count_if(first, first + maps.count,
                         [](const CUtensorMap& map) { return map.opaque[0] != state().encoding; });
  }
  return 1;  // a kernel that is not known above: at least one nobody looked at
}

cudaError_t record(const void* function, const dim3& grid, const dim3& block, size_t shared,
                   void** arguments) {
  const auto name = state().names.find(function);
  if (name == state().names.end()) return cudaErrorInvalidDeviceFunction;
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (shared > kWithoutAsking && !state().prepared.contains({function, state().device})) {
    return cudaErrorInvalidValue;
  }
  state().launches.push_back({name->second, volume(grid), volume(block),
                              static_cast<int64_t>(shared), state().device,
                              unwritten_maps(name->second, arguments)});
  return cudaSuccess;
}

// Stands for the driver's tensor map encoder.
CUresult encode(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  *map = {};
  map->opaque[0] = state().encoding;
  return CUDA_SUCCESS;
}

CUresult launch_by_driver(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void**) {
  const cudaError_t error = record(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                                   config->sharedMemBytes, arguments);
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

void use(const Gpu& gpu) { state().gpu = gpu; }

std::vector<Launch> take_launches() {
  ++state().encoding;
  return std::exchange(state().launches, {});
}

int current_device() { return state().device; }

}  // namespace flashcore::fake

// The parts of the runtime that the library calls, directly or through nvcc's launch code.
using flashcore::fake::state;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  state().names[function] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  state().next = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = state().next.grid;
  *block = state().next.block;
  *shared = state().next.shared;
  *static_cast<cudaStream_t*>(stream) = state().next.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t) {
  return flashcore::fake::record(kernel, grid, block, shared, arguments);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t) {
  return flashcore::fake::record(function, grid, block, shared, arguments);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  return flashcore::fake::record(function, config->gridDim, config->blockDim,
                                 config->dynamicSmemBytes, arguments);
}

cudaError_t cudaGetDevice(int* device) {
  *device = state().device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  state().device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) { return cudaErrorInvalidDevice; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = state().gpu.multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(state().gpu.shared_memory_a_block);
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = state().gpu.compute_capability / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = state().gpu.compute_capability % 10;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int) {
  state().prepared.insert({function, state().device});
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "of the recording runtime"; }
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
// A probe's result: no mismatches.
cudaError_t cudaMemcpyFromSymbol(void* to, const void*, size_t bytes, size_t, cudaMemcpyKind) {
  std::memset(to, 0, bytes);
  return cudaSuccess;
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  *function = static_cast<cudaFunction_t>(const_cast<void*>(symbol));
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *entry = std::string_view(name) == "cuLaunchKernelEx"
               ? reinterpret_cast<void*>(&flashcore::fake::launch_by_driver)
               : reinterpret_cast<void*>(&flashcore::fake::encode);
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"

#include "fake_runtime.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flashcore::fake {
namespace {

// One program of a fat binary.
struct DeviceCode {
  int capability = 0;  // 80
  bool ptx = false;
};

struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
  std::string attributes;
};

struct State {
  Gpu gpu;
  std::map<const void*, std::string> names;  // of kernels, by their host function
  Configuration next;
  std::vector<Launch> launches;
  int device = 0;
  // Kernels whose settings were changed, where, and to what: they may have more than 48 KB.
  std::map<std::pair<const void*, int>, std::map<int, int>> prepared;
  std::set<std::pair<const void*, int>> loaded;      // kernels, where
  std::set<std::pair<const void*, int>> ahead;       // those loaded before the last take_launches()
  std::set<int> contexts;                            // GPUs that have one
  std::map<std::string, int, std::less<>> failures;  // calls of a function that are to fail
  std::map<const void*, std::vector<DeviceCode>> code;  // of kernels, by their host function
  std::map<void**, std::vector<DeviceCode>> modules;
  cudaError_t last_error = cudaSuccess;
  int devices = 0;
  uint64_t encoding = 1;  // what is written into a map now
  std::map<std::string, std::vector<size_t>> argument_sizes;
};

State& state() {
  static State one;  // kernels are registered before main
  return one;
}

// The result of a call, which the runtime remembers when it is an error.
cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) state().last_error = error;
  return error;
}

// Returns whether this call is one that fail() asked for.
bool fails(std::string_view function) {
  const auto found = state().failures.find(function);
  if (found == state().failures.end() || found->second == 0) return false;
  --found->second;
  return true;
}

// As the driver does, which the names of targets are not asked for: machine code runs on the GPUs
// of its own generation from its own on (that for 9.0 here is 9.0a's), PTX on all from its own on.
bool has_code(const void* function, int capability) {
  const auto found = state().code.find(function);
  if (found == state().code.end()) return true;  // a kernel without a binary, made up by a test
#if defined(FLASHCORE_CUDA_ONE_TYPE)  // what is for fp16 was left out for other GPUs than 9.0
  if (found->second.size() == 1 && found->second[0].capability == 90) return true;
#endif
  return std::any_of(found->second.begin(), found->second.end(), [&](const DeviceCode& one) {
    if (one.capability > capability) return false;
    return one.ptx ||
           (one.capability == 90 ? capability == 90 : one.capability / 10 == capability / 10);
  });
}

template <class T>
T read_at(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The programs in a fat binary: a header of 16 bytes, then entries with headers of their own.
std::vector<DeviceCode> programs(const std::byte* binary) {
  constexpr uint32_t kMagic = 0xBA55ED50;
  constexpr uint16_t kPtx = 1, kElf = 2;
  std::vector<DeviceCode> found;
  if (binary == nullptr || read_at<uint32_t>(binary) != kMagic) return found;
  const std::byte* at = binary + read_at<uint16_t>(binary + 6);
  const std::byte* const end = at + read_at<uint64_t>(binary + 8);
  while (at < end) {
    const auto kind = read_at<uint16_t>(at);
    if (kind == kPtx || kind == kElf) {
      found.push_back({static_cast<int>(read_at<uint32_t>(at + 28)), kind == kPtx});
    }
    at += read_at<uint32_t>(at + 4) + read_at<uint64_t>(at + 8);
  }
  return found;
}

int64_t volume(const dim3& d) { return int64_t{d.x} * d.y * d.z; }

// An address's mark on top, so that it is not taken for a part of what a map describes.
uint64_t marked_encoding() { return fake::kAddressMark << 48 | state().encoding; }

std::string geometry_of(const void* function, const Configuration& launch) {
  const auto& [grid, block, shared, stream, attributes] = launch;
  std::string text = fmt::format("{},{},{}/{},{},{}/{}{}", grid.x, grid.y, grid.z, block.x, block.y,
                                 block.z, shared, attributes);
  const auto settings = state().prepared.find({function, state().device});
  if (settings == state().prepared.end()) return text;
  for (const auto& [setting, value] : settings->second) {
    // Room for shared memory is asked for once, for the largest launch so far: no launch's own.
    if (setting != cudaFuncAttributeMaxDynamicSharedMemorySize) {
      text += fmt::format("/setting{}={}", setting, value);
    }
  }
  return text;
}

std::vector<std::byte> bytes_of(const std::string& kernel, void** arguments) {
  std::vector<std::byte> bytes;
  const auto sizes = state().argument_sizes.find(kernel);
  if (sizes == state().argument_sizes.end()) return bytes;
  for (size_t i = 0; i < sizes->second.size(); ++i) {
    const auto* const first = static_cast<const std::byte*>(arguments[i]);
    bytes.insert(bytes.end(), first, first + sizes->second[i]);
    bytes.resize((bytes.size() + 7) / 8 * 8);  // each begins at a whole word
  }
  return bytes;
}

// The driver's attributes and the runtime's are alike: a number, and a union 8 bytes from it. What
// an attribute leaves of the union says nothing.
template <class Attribute>
std::string attributes_of(const Attribute* attributes, unsigned count) {
  static_assert(sizeof(Attribute) == 72);
  std::string text;
  for (unsigned i = 0; i < count; ++i) {
    int words[3];
    std::memcpy(words, reinterpret_cast<const std::byte*>(attributes + i) + 8, sizeof words);
    const int id = static_cast<int>(attributes[i].id);
    const bool is_cluster = id == cudaLaunchAttributeClusterDimension;
    text += fmt::format("/attribute{}={},{},{}", id, words[0], is_cluster ? words[1] : 0,
                        is_cluster ? words[2] : 0);
  }
  return text;
}

// The kernels that are given tensor maps: in which argument, and how many they look at whatever the
// problem is. The ladder's are zeros without keys, decode_sm90's where keys are copied row by row, and
// no block fetches them.
struct MapArgument {
  std::string_view kernel;  // part of its mangled name
  int argument;
  int count;
};
constexpr MapArgument kMapArguments[] = {
    {"forward_latency_kernel", 1, 3}, {"forward_latency_wide_kernel", 1, 3},
    {"12forward_sm90", 0, 4},         {"wide_gradient_kernel", 0, 7},
    {"13backward_sm90", 0, 6},        {"16forward_fp8_sm90", 0, 3},
    {"wgmma_tma_kernel", 0, 0},       {"decode_stream_kernel", 1, 0},
    {"13latent_kernel", 1, 2}};

int64_t unwritten_maps(std::string_view kernel, void** arguments) {
  if (kernel.find("4Maps") == std::string_view::npos) return 0;  // the type of such an argument
  for (const MapArgument& maps : kMapArguments) {
    if (kernel.find(maps.kernel) == std::string_view::npos) continue;
    const auto* const first = static_cast<const CUtensorMap*>(arguments[maps.argument]);
    return std::count_if(first, first + maps.count,
                         [](const CUtensorMap& map) { return map.opaque[0] != marked_encoding(); });
  }
  return 1;  // a kernel that is not known above: at least one nobody looked at
}

cudaError_t load(const void* function) {
  if (!has_code(function, state().gpu.compute_capability)) return cudaErrorNoKernelImageForDevice;
  state().contexts.insert(state().device);
  state().loaded.insert({function, state().device});
  return cudaSuccess;
}

cudaError_t record(const void* function, const Configuration& launch, void** arguments) {
  const auto name = state().names.find(function);
  if (name == state().names.end()) return cudaErrorInvalidDeviceFunction;
  if (fails("launch")) return cudaErrorLaunchOutOfResources;
  const bool ahead = state().ahead.contains({function, state().device});
  if (const cudaError_t error = load(function); error != cudaSuccess) return error;
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (launch.shared > kWithoutAsking && !state().prepared.contains({function, state().device})) {
    return cudaErrorInvalidValue;
  }
  state().launches.push_back({name->second, volume(launch.grid), volume(launch.block),
                              static_cast<int64_t>(launch.shared), state().device,
                              unwritten_maps(name->second, arguments), ahead,
                              geometry_of(function, launch), bytes_of(name->second, arguments)});
  return cudaSuccess;
}

// Stands for the driver's tensor map encoder: a map is when it was made and a checksum (FNV-1a) of
// all that it was made from but the address.
CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void*,
                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                CUtensorMapFloatOOBfill fill) {
  uint64_t sum = 0xcbf29ce484222325;
  const auto add = [&](uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      sum = (sum ^ (value >> shift & 0xff)) * 0x100000001b3;
    }
  };
  for (const uint64_t value : {uint64_t{type}, uint64_t{rank}, uint64_t{interleave},
                               uint64_t{swizzle}, uint64_t{promotion}, uint64_t{fill}}) {
    add(value);
  }
  for (cuuint32_t i = 0; i < rank; ++i) {
    add(extents[i]);
    add(i + 1 < rank ? strides[i] : 0);
    add(box[i]);
    add(element_strides[i]);
  }
  *map = {};
  map->opaque[0] = marked_encoding();
  map->opaque[1] = sum & 0xffffffffffff;  // no mark of an address
  return CUDA_SUCCESS;
}

CUresult launch_by_driver(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void**) {
  const Configuration launch{{config->gridDimX, config->gridDimY, config->gridDimZ},
                             {config->blockDimX, config->blockDimY, config->blockDimZ},
                             config->sharedMemBytes,
                             nullptr,
                             attributes_of(config->attrs, config->numAttrs)};
  const cudaError_t error = record(function, launch, arguments);
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult device_get(CUdevice* device, int ordinal) {
  *device = 1000 + ordinal;  // not the ordinal
  return CUDA_SUCCESS;
}
CUresult primary_context_state(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = state().contexts.contains(device - 1000) ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace

void use(const Gpu& gpu) { state().gpu = gpu; }
void have_devices(int count) { state().devices = count; }
void fail(std::string_view function, int times) { state().failures[std::string(function)] = times; }
void set_last_error(int error) { state().last_error = static_cast<cudaError_t>(error); }
int last_error() { return state().last_error; }
void give_context(int device) { state().contexts.insert(device); }
bool has_context(int device) { return state().contexts.contains(device); }

void forget() {
  state().device = 0;
  state().contexts.clear();
  state().prepared.clear();
  state().loaded.clear();
  state().ahead.clear();
  state().failures.clear();
  state().launches.clear();
  state().last_error = cudaSuccess;
}

void use(std::map<std::string, std::vector<size_t>> argument_sizes) {
  state().argument_sizes = std::move(argument_sizes);
}

std::vector<Launch> take_launches() {
  ++state().encoding;
  state().ahead = state().loaded;
  return std::exchange(state().launches, {});
}

int current_device() { return state().device; }

}  // namespace flashcore::fake

// The parts of the runtime that the library calls, directly or through nvcc's launch code.
using flashcore::fake::answer;
using flashcore::fake::fails;
using flashcore::fake::state;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  // The wrapper: magic, version, the binary.
  auto** const handle = static_cast<void**>(wrapper);
  state().modules[handle] = flashcore::fake::programs(
      flashcore::fake::read_at<const std::byte*>(static_cast<const std::byte*>(wrapper) + 8));
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void** module, const char* function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  state().names[function] = name;
  if (const auto found = state().modules.find(module); found != state().modules.end()) {
    state().code[function] = found->second;
  }
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  state().next = {grid, block, shared, stream, {}};
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
  return answer(flashcore::fake::record(kernel, {grid, block, shared, nullptr, {}}, arguments));
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t) {
  return answer(flashcore::fake::record(function, {grid, block, shared, nullptr, {}}, arguments));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  return answer(
      flashcore::fake::record(function,
                              {config->gridDim, config->blockDim, config->dynamicSmemBytes, nullptr,
                               flashcore::fake::attributes_of(config->attrs, config->numAttrs)},
                              arguments));
}

cudaError_t cudaGetDevice(int* device) {
  *device = state().device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  state().device = device;
  state().contexts.insert(device);  // since CUDA 12
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (fails("cudaGetDeviceCount")) return answer(cudaErrorInitializationError);
  *count = state().devices;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device >= state().devices) return answer(cudaErrorInvalidDevice);
  if (fails("cudaGetDeviceProperties")) return answer(cudaErrorInitializationError);
  const flashcore::fake::Gpu& gpu = state().gpu;
  *properties = {};
  std::strcpy(properties->name, "a GPU that only writes launches down");
  properties->major = gpu.compute_capability / 10;
  properties->minor = gpu.compute_capability % 10;
  properties->multiProcessorCount = gpu.multiprocessors;
  properties->sharedMemPerBlockOptin = static_cast<size_t>(gpu.shared_memory_per_block);
  properties->totalGlobalMem = size_t{1} << 36;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = state().gpu.multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(state().gpu.shared_memory_per_block);
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
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute setting, int value) {
  const cudaError_t error = flashcore::fake::load(function);
  if (error == cudaSuccess) state().prepared[{function, state().device}][setting] = value;
  return answer(error);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = {};
  return answer(flashcore::fake::load(function));
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
cudaError_t cudaGetLastError() { return std::exchange(state().last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return state().last_error; }
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
  return answer(flashcore::fake::load(symbol));
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  if (fails(name)) return answer(cudaErrorInitializationError);
  constexpr std::pair<std::string_view, void*> kNone{"", nullptr};
  const std::pair<std::string_view, void*> entries[] = {
      {"cuLaunchKernelEx", reinterpret_cast<void*>(&flashcore::fake::launch_by_driver)},
      {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(&flashcore::fake::encode)},
      {"cuDeviceGet", reinterpret_cast<void*>(&flashcore::fake::device_get)},
      {"cuDevicePrimaryCtxGetState",
       reinterpret_cast<void*>(&flashcore::fake::primary_context_state)}};
  const auto* const found = std::find_if(std::begin(entries), std::end(entries),
                                         [&](const auto& one) { return one.first == name; });
  *entry = (found == std::end(entries) ? kNone : *found).second;
  if (*entry == nullptr) {
    *result = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  }
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"

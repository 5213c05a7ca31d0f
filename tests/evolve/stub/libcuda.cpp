// A stub of the CUDA driver, to test the evaluator of GPU candidates without a GPU: its "device
// code" is a shared object of host code (cuda_fp16.h), its memory is the host's, and a launch runs
// all threads one after the other.
#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

struct Index {
  unsigned x, y, z;
};
struct Event {
  std::chrono::steady_clock::time_point at;
};
constexpr int kPointers = 6, kArguments = 13, kWrong = 1, kNotFound = 500;

using Entry = void (*)(const void*, const void*, const void*, void*, void*, void*, int, int, int,
                       int, int, int, float);

struct Function {
  Entry entry;
  Index *thread, *block, *block_size, *grid_size;
};

template <class T>
const T& argument(void** arguments, int i) {
  return *static_cast<const T*>(arguments[i]);
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int) { return *device = 0; }
int cuDeviceGetName(char* name, int length, int) {
  std::strncpy(name, "stub", static_cast<size_t>(length));
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 13:
      *value = 2000000;
      return 0;
    case 16:
      *value = 132;
      return 0;
    case 38:
      *value = 1 << 20;
      return 0;
    case 75:
      *value = 9;
      return 0;
    case 76:
      *value = 0;
      return 0;
    case 97:
      *value = 227 << 10;
      return 0;
    default:
      return kWrong;
  }
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = nullptr;
  return 0;
}
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuCtxResetPersistingL2Cache() { return 0; }

int cuModuleLoad(void** module, const char* path) {
  *module = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return *module != nullptr ? 0 : kNotFound;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto index = [&](const char* which) { return static_cast<Index*>(::dlsym(module, which)); };
  auto* const found =
      new Function{reinterpret_cast<Entry>(::dlsym(module, name)), index("threadIdx"),
                   index("blockIdx"), index("blockDim"), index("gridDim")};
  *function = found;
  return found->entry != nullptr && found->thread != nullptr ? 0 : kNotFound;
}
int cuModuleGetGlobal_v2(uint64_t* at, size_t* bytes, void* module, const char* name) {
  *at = reinterpret_cast<uint64_t>(::dlsym(module, name));
  *bytes = sizeof(int);
  return *at != 0 ? 0 : kNotFound;
}
int cuFuncGetParamInfo(void*, size_t i, size_t* offset, size_t* bytes) {
  if (i >= kArguments) return kWrong;
  *bytes = i < kPointers ? 8 : 4;
  *offset = i < kPointers ? 8 * i : 8 * kPointers + 4 * (i - kPointers);
  return 0;
}
int cuFuncGetAttribute(int* value, int, void*) { return *value = 0; }
int cuFuncSetAttribute(void*, int, int) { return 0; }

int cuMemAlloc_v2(uint64_t* at, size_t bytes) {
  *at = reinterpret_cast<uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return *at != 0 ? 0 : 2;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
int cuMemsetD8_v2(uint64_t at, unsigned char value, size_t bytes) {
  std::memset(reinterpret_cast<void*>(at), value, bytes);
  return 0;
}

int cuStreamCreate(void** stream, unsigned) {
  *stream = nullptr;
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  *event = new Event();
  return 0;
}
int cuEventRecord(void* event, void*) {
  static_cast<Event*>(event)->at = std::chrono::steady_clock::now();
  return 0;
}
int cuEventSynchronize(void*) { return 0; }
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const auto passed = static_cast<Event*>(end)->at - static_cast<Event*>(begin)->at;
  *milliseconds = std::chrono::duration<float, std::milli>(passed).count();
  // Simulates a candidate that manipulates the GPU's clock.
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&cuInit), &self) != 0 &&
      std::strstr(self.dli_fname, "late/")) {
    *milliseconds /= 1000;
  }
  return 0;
}
int cuTensorMapEncodeTiled(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                           const uint32_t*, const uint32_t*, int, int, int, int) {
  return kWrong;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_OF_THE_STUB";
  return 0;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned, void*, void** a,
                   void**) {
  const Function& f = *static_cast<const Function*>(function);
  *f.grid_size = {grid_x, grid_y, grid_z};
  *f.block_size = {block_x, block_y, block_z};
  for (unsigned block = 0; block < grid_x * grid_y * grid_z; ++block) {
    *f.block = {block % grid_x, block / grid_x % grid_y, block / grid_x / grid_y};
    for (unsigned thread = 0; thread < block_x * block_y * block_z; ++thread) {
      *f.thread = {thread % block_x, thread / block_x % block_y, thread / block_x / block_y};
      f.entry(argument<const void*>(a, 0), argument<const void*>(a, 1), argument<const void*>(a, 2),
              argument<void*>(a, 3), argument<void*>(a, 4), argument<void*>(a, 5),
              argument<int>(a, 6), argument<int>(a, 7), argument<int>(a, 8), argument<int>(a, 9),
              argument<int>(a, 10), argument<int>(a, 11), argument<float>(a, 12));
    }
  }
  return 0;
}

}  // extern "C"

// The functions of the CUDA driver that the evaluator of GPU candidates uses, loaded from
// libcuda.so.1 at run time: a build needs no CUDA for them. Types and constants follow the driver's
// documented binary interface (CUDA Driver API, cuda.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace flashcore::evolve {

using GpuStatus = int;  // CUresult; 0 is success
using GpuAddress = unsigned long long;
struct GpuContext;
struct GpuModule;
struct GpuFunction;
struct GpuStream;
struct GpuEvent;

// CUtensorMap: opaque.
struct alignas(128) GpuTensorMap {
  uint64_t opaque[16];
};

// CUdevice_attribute.
enum class GpuAttribute : int {
  max_shared_bytes_per_block = 97,  // opt-in
  clock_khz = 13,
  multiprocessors = 16,
  compute_major = 75,
  compute_minor = 76,
  l2_bytes = 38,
};

struct GpuDriver {
  GpuStatus (*init)(unsigned flags);
  GpuStatus (*device_get)(int* device, int number);
  GpuStatus (*device_name)(char* name, int length, int device);
  GpuStatus (*device_attribute)(int* value, GpuAttribute attribute, int device);
  GpuStatus (*primary_retain)(GpuContext** context, int device);
  GpuStatus (*context_set)(GpuContext* context);
  GpuStatus (*synchronize)();
  GpuStatus (*reset_persisting_l2)();
  GpuStatus (*module_load)(GpuModule** module, const char* path);
  GpuStatus (*module_function)(GpuFunction** function, GpuModule* module, const char* name);
  GpuStatus (*module_global)(GpuAddress* at, size_t* bytes, GpuModule* module, const char* name);
  GpuStatus (*function_parameter)(GpuFunction* function, size_t number, size_t* offset,
                                  size_t* bytes);
  GpuStatus (*function_attribute)(int* value, int attribute, GpuFunction* function);
  GpuStatus (*function_set)(GpuFunction* function, int attribute, int value);
  GpuStatus (*allocate)(GpuAddress* at, size_t bytes);
  GpuStatus (*copy_in)(GpuAddress to, const void* from, size_t bytes);
  GpuStatus (*copy_out)(void* to, GpuAddress from, size_t bytes);
  GpuStatus (*set_bytes)(GpuAddress at, unsigned char value, size_t bytes);
  GpuStatus (*stream_create)(GpuStream** stream, unsigned flags);
  GpuStatus (*event_create)(GpuEvent** event, unsigned flags);
  GpuStatus (*event_record)(GpuEvent* event, GpuStream* stream);
  GpuStatus (*event_synchronize)(GpuEvent* event);
  GpuStatus (*event_elapsed)(float* milliseconds, GpuEvent* begin, GpuEvent* end);
  GpuStatus (*launch)(GpuFunction* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      GpuStream* stream, void** arguments, void** extra);
  GpuStatus (*encode_tiled)(GpuTensorMap* map, int type, uint32_t rank, void* base,
                            const uint64_t* extents, const uint64_t* strides, const uint32_t* box,
                            const uint32_t* element_strides, int interleave, int swizzle,
                            int promotion, int fill);
  GpuStatus (*error_name)(GpuStatus status, const char** name);
};

// Returns false, with the reason in `error`, if there is no driver or it lacks a function.
bool load_gpu_driver(GpuDriver& driver, std::string& error);

}  // namespace flashcore::evolve

#include "cuda/launch/launch.hpp"

#include <algorithm>

namespace flashcore::cuda::launch {
namespace {

cudaError_t load_function(Kernel& kernel) {
  const void* const function = kernel.instance->function;
  const Shape& shape = kernel.instance->shape;
  cudaFuncAttributes attributes{};
  cudaError_t error =
      shape.shared_bytes == 0
          ? cudaFuncGetAttributes(&attributes, function)
          : cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.shared_bytes));
  if (error == cudaSuccess && shape.prefers_shared) {
    error = cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
  }
  return error == cudaSuccess ? cudaGetFuncBySymbol(&kernel.function, function) : error;
}

}  // namespace

const Instance* find_instance(std::string_view family, std::string_view name) {
  const std::span<const Instance> all = instances(family);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Instance& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string_view element_name(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "fp16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "fp32";
    default:
      return "fp8";
  }
}

cudaError_t start(const Kernel& kernel, const Grid& grid, void** arguments, const char* signature,
                  cudaStream_t stream) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return cudaSuccess;
  if (kernel.instance == nullptr) return cudaErrorInvalidDeviceFunction;
  const char* const wanted = kernel.instance->signature;  // null: a stub's
  if (wanted != nullptr && wanted != signature) return cudaErrorInvalidDeviceFunction;
  const unsigned int threads = grid.threads != 0 ? grid.threads : kernel.instance->shape.threads;
  return start_blocks(kernel, grid, threads, arguments, stream);
}

Status Loader::load(Kernel& loaded, std::string_view family, std::string_view instance) const {
  if (guard_.error() != cudaSuccess)
    return host::cuda_failure(kernel_, "choosing its GPU", guard_.error());
  loaded = {.instance = find_instance(family, instance)};
  const cudaError_t error =
      loaded.instance == nullptr ? cudaErrorInvalidDeviceFunction : load_function(loaded);
  return error == cudaSuccess ? Status{}
                              : host::cuda_failure(kernel_, "preparing the kernel", error);
}

Status Launcher::status() const { return failed("choosing its GPU", guard_.error()); }

}  // namespace flashcore::cuda::launch

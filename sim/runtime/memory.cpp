// Memory of the simulated GPUs, which they all share.
#include <cuda_runtime_api.h>

#include <cstring>

#include "engine/allocations.hpp"
#include "runtime/state.hpp"

namespace {

using flashcore::sim::run_queue;

constexpr uint8_t kUnwritten = 0xff;  // NaN in every type

// The device side of a copy must lie inside of one allocation.
bool has(const void* memory, size_t bytes) {
  const std::lock_guard lock(flashcore::sim::machine_mutex());
  return flashcore::sim::find_allocation(memory, bytes) != nullptr;
}

cudaError_t fail(cudaError_t error) {
  flashcore::sim::last_error() = error;
  return error;
}

}  // namespace

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(flashcore::sim::machine_mutex());
  *memory = bytes == 0 ? nullptr : flashcore::sim::allocate_global(bytes, kUnwritten);
  return bytes == 0 || *memory != nullptr ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* memory) {
  const cudaError_t error = run_queue();
  const std::lock_guard lock(flashcore::sim::machine_mutex());
  if (memory != nullptr && !flashcore::sim::free_global(memory)) return fail(cudaErrorInvalidValue);
  return error;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = run_queue(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  if ((kind != cudaMemcpyHostToDevice && !has(from, bytes)) ||
      (kind != cudaMemcpyDeviceToHost && !has(to, bytes))) {
    return fail(cudaErrorInvalidValue);
  }
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (const cudaError_t error = run_queue(); error != cudaSuccess) return error;
  if (!has(to, bytes)) return fail(cudaErrorInvalidValue);
  std::memset(to, value, bytes);
  return cudaSuccess;
}

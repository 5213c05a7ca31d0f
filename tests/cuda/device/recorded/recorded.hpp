// Small kernels, one per operation of the tensor core and the copy engine, whose results are compared
// with those that a GPU gave (docs/evidence/recorded-values.json). The same source runs on a GPU and
// on the simulator.
//
// Inputs come from `hashed`, and are small whole numbers, so that sums are exact in any order.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/host/launch_kernel.hpp"

namespace flashcore::recorded {

struct Case {
  std::string name;
  std::function<std::vector<uint32_t>()> words;  // runs it
  // Floats that may differ by this part of their magnitude, or of `least`; 0: equal bits.
  double tolerance = 0, least = 0;
  bool refused = false;  // the device must end it with an error
};

// A whole number without a pattern; `stream` numbers the inputs of a kernel.
__host__ __device__ constexpr uint32_t hashed(uint32_t stream, uint32_t index) {
  uint32_t x = index * 0x9e3779b1u + stream * 0x85ebca77u + 0x27d4eb2fu;
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  x = (x ^ (x >> 12)) * 0x297a2d39u;
  return x ^ (x >> 15);
}

// From -most to most.
__host__ __device__ constexpr float small_number(uint32_t stream, uint32_t index, int most) {
  const uint32_t values = 2 * static_cast<uint32_t>(most) + 1;
  return static_cast<float>(static_cast<int>(hashed(stream, index) % values) - most);
}

// A byte that is not 0, so that what a copy filled with zeros is told from what it copied.
__host__ __device__ constexpr unsigned char hashed_byte(uint32_t stream, uint32_t index) {
  return static_cast<unsigned char>(1 + hashed(stream, index) % 255);
}

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Device memory, filled byte by byte.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& from) : size_(from.size()) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(T)));
    check(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { (void)cudaFree(data_); }

  T* get() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> to(size_);
    check(cudaMemcpy(to.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

inline constexpr uint32_t kNotWritten = 0xdeadbeef;

// What kernel(arguments..., words) writes into `words` words.
template <class... Parameters, class... Arguments>
std::vector<uint32_t> words_of(void (*kernel)(Parameters...), cuda::host::LaunchShape shape,
                               size_t words, const Arguments&... arguments) {
  const DeviceArray<uint32_t> out(std::vector<uint32_t>(words, kNotWritten));
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shape.shared_bytes)));
  check(cuda::host::launch_kernel(kernel, shape, nullptr, arguments..., out.get()));
  check(cudaDeviceSynchronize());
  return out.read();
}

// Each file's cases.
std::vector<Case> warpgroup_cases();
std::vector<Case> warp_cases();
std::vector<Case> copy_cases();
std::vector<Case> format_cases();

}  // namespace flashcore::recorded

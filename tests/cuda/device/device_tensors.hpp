// A problem's tensors and workspace in a GPU's memory, for the tests on a GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore {

// Device copies of a host problem's tensors.
class DeviceTensors {
 public:
  explicit DeviceTensors(const bench::HostProblem& host) {
    for (const auto& [name, tensor] : host.tensors) {
      void* copy = nullptr;
      EXPECT_EQ(cudaMalloc(&copy, std::max<size_t>(tensor.memory().size(), 1)), cudaSuccess);
      copies_.emplace(name, copy);
    }
    upload(host);
  }
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;
  ~DeviceTensors() {
    for (const auto& [name, copy] : copies_) cudaFree(copy);
  }

  // Waits until the copies have landed: streams that do not block would not.
  void upload(const bench::HostProblem& host) {
    for (const auto& [name, tensor] : host.tensors) {
      EXPECT_EQ(cudaMemcpy(copies_.at(name), tensor.memory().data(), tensor.memory().size(),
                           cudaMemcpyHostToDevice),
                cudaSuccess);
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  // Waits for the device.
  void download_outputs(bench::HostProblem& host) const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (auto& [name, tensor] : host.tensors) {
      if (!bench::is_output(name)) continue;
      EXPECT_EQ(cudaMemcpy(tensor.memory().data(), copies_.at(name), tensor.memory().size(),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
    }
  }

  Arguments arguments(const bench::HostProblem& host) const {
    Arguments args = bench::bind(host.problem, [&](std::string_view name) -> void* {
      return static_cast<std::byte*>(copies_.find(name)->second) + host.at(name).origin();
    });
    args.dropout_seed = host.dropout_seed;
    args.dropout_offset = host.dropout_offset;
    return args;
  }

 private:
  std::map<std::string, void*, std::less<>> copies_;
};

class Workspace {
 public:
  Workspace(size_t bytes, int fill) : bytes_(bytes) {
    if (bytes == 0) return;
    EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, fill, bytes), cudaSuccess);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { cudaFree(data_); }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// What is compared bit for bit: the bytes of every output.
using Outputs = std::vector<std::vector<std::byte>>;

inline Outputs outputs_of(const bench::HostProblem& host) {
  Outputs all;
  for (const auto& [name, tensor] : host.tensors) {
    if (bench::is_output(name)) all.emplace_back(tensor.memory().begin(), tensor.memory().end());
  }
  return all;
}

}  // namespace flashcore

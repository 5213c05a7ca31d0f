// Tensors on a device for one workload: inputs that repeat a piece, and outputs between guards.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/device/device_memory.hpp"
#include "bench/gate/sampled_gate.hpp"
#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/tiled_inputs.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class TiledTensors {
 public:
  explicit TiledTensors(std::unique_ptr<DeviceMemory> memory) : memory_(std::move(memory)) {}

  Status add_input(const std::string& name, const TensorDesc& desc, const TiledInputs& inputs);
  // The elements of input `of` once more, elsewhere.
  Status add_copy(const std::string& name, const TensorDesc& desc, std::string_view of);
  // Those of the problem besides q, k, v and lengths. Bias and mask repeat a piece, too; entries of
  // a packed batch begin at packed_starts; pages are in a random order.
  Status add_features(const Problem& problem);
  // Keys in use of each entry, where the problem has lengths.
  Status add_lengths(const Problem& problem, std::span<const int32_t> keys);
  // Starts and ends between guards.
  Status add_output(const std::string& name, const TensorDesc& desc);
  // Neither: written before the workload runs, and read by it.
  Status add_memory(const std::string& name, const TensorDesc& desc);

  void* pointer(std::string_view name) const { return data_.find(name)->second; }
  DeviceMemory& memory() { return *memory_; }
  // What a plan's run needs; lives as long as the tensors.
  Result<void*> workspace(size_t bytes);

  Status poison();  // the outputs, and their guards
  Status fetch();   // waits, and copies the outputs to the host

  // Elements of inputs, as they are on the device, and of outputs, as they were fetched.
  ReadElements inputs() const;
  ReadElements outputs() const;

  // After fetch. NaN is also what was not written.
  bool has_nan(std::string_view output) const;
  std::string overrun() const;  // which output has bytes around it that were written; empty: none

 private:
  static constexpr size_t kGuardBytes = 256;
  struct Output {
    DType dtype;
    std::vector<std::byte> copy;  // on the host, with guards
  };

  Status add_tiled(const std::string& name, const TensorDesc& desc, HostTensor piece);
  static std::span<const std::byte> elements_of(const Output& output);

  std::unique_ptr<DeviceMemory> memory_;
  std::map<std::string, std::byte*, std::less<>> data_;  // where elements begin, on the device
  std::map<std::string, HostTensor, std::less<>> own_pieces_;
  std::map<std::string, std::span<const std::byte>, std::less<>> pieces_;
  std::map<std::string, Output, std::less<>> outputs_;
};

}  // namespace flashcore::bench

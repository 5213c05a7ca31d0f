// A workload's tensors on a device: inputs that repeat a piece, and outputs between guards.
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
#include "bench/gate/part.hpp"
#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/tiled_inputs.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class TiledTensors {
 public:
  explicit TiledTensors(std::unique_ptr<DeviceMemory> memory) : memory_(std::move(memory)) {}

  Status add_input(const std::string& name, const TensorDesc& desc, const TiledInputs& inputs);
  // Adds another copy of input `of`, elsewhere in memory.
  Status add_copy(const std::string& name, const TensorDesc& desc, std::string_view of);
  // Adds the problem's inputs other than q, k, v and lengths. Bias and mask repeat a piece, too;
  // entries of a packed batch begin at packed_starts; pages are in random order.
  Status add_features(const Problem& problem);
  // Adds the keys in use per entry, if the problem has lengths.
  Status add_lengths(const Problem& problem, std::span<const int32_t> keys);
  // Adds an output, with guards before and after.
  Status add_output(const std::string& name, const TensorDesc& desc);
  // Adds working memory: written before the workload runs, and read by it.
  Status add_memory(const std::string& name, const TensorDesc& desc);

  void* pointer(std::string_view name) const { return data_.find(name)->second; }
  DeviceMemory& memory() { return *memory_; }
  // Workspace for a plan's run; valid as long as the tensors.
  Result<void*> workspace(size_t bytes);

  Status poison();  // the outputs, and their guards
  Status fetch();   // waits, and copies the outputs to the host

  // Reads elements of inputs from the device, and of outputs as fetched.
  ReadElements inputs() const;
  ReadElements outputs() const;

  // Sentences, or "", as for tensors on the host. Call after fetch().
  std::string unwritten(std::string_view output) const;
  std::string overrun() const;

 private:
  static constexpr size_t kGuardBytes = 256;
  struct Output {
    DType dtype;
    std::vector<std::byte> copy;  // host copy, with guards
  };

  Status add_tiled(const std::string& name, const TensorDesc& desc, HostTensor piece);
  static std::span<const std::byte> elements_of(const Output& output);

  std::unique_ptr<DeviceMemory> memory_;
  std::map<std::string, std::byte*, std::less<>> data_;  // device addresses of the first elements
  std::map<std::string, HostTensor, std::less<>> own_pieces_;
  std::map<std::string, std::span<const std::byte>, std::less<>> pieces_;
  std::map<std::string, Output, std::less<>> outputs_;
};

}  // namespace flashcore::bench

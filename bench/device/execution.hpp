// A planned problem on its device: tensors and workspace are allocated, and results are fetched.
#pragma once

#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "bench/device/device_memory.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// On the CPU a run uses the host tensors themselves; on other devices it uses copies.
class Execution {
 public:
  // `host` must outlive it. Outputs on the device start with the host's contents.
  static Result<Execution> prepare(const Plan& plan, Device device, HostProblem& host);
  static Result<Execution> prepare(const Plan& plan, Device device, HostBackward& host);

  // Same as Plan::run: asynchronous on a GPU.
  Status run(Stream stream = {}) const;

  // Waits, and copies the outputs to the host tensors.
  Status fetch();

 private:
  struct Copy {
    std::string_view name;
    HostTensor* tensor;
    bool is_output;
    void* memory;  // HostTensor::memory() on the device; null on the CPU
  };

  explicit Execution(Plan plan) : plan_(std::move(plan)) {}
  Status allocate(Device device);
  Status copy_tensors();
  void* pointer_to(std::string_view name) const;

  Plan plan_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<Copy> tensors_;
  std::variant<Arguments, BackwardArguments> arguments_;
  void* workspace_ = nullptr;
};

}  // namespace flashcore::bench

// A planned problem on its device: tensors and workspace are there, and results come back.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "bench/device/device_memory.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// On the CPU a run reads and writes the host tensors themselves; elsewhere copies of them.
class Execution {
 public:
  // `host` must outlive it. Outputs on the device start as they are on the host.
  static Result<Execution> prepare(const Plan& plan, Device device, HostProblem& host);

  // As Plan::run: asynchronous on a GPU.
  Status run(Stream stream = {}) const;

  // Waits, and copies the outputs to the host tensors.
  Status fetch();

 private:
  Execution(Plan plan, HostProblem& host) : plan_(std::move(plan)), host_(&host) {}
  Status allocate_workspace();
  Status copy_tensors();

  Plan plan_;
  HostProblem* host_;
  std::unique_ptr<DeviceMemory> memory_;
  std::map<std::string, void*, std::less<>> copies_;  // of HostTensor::memory(); empty on the CPU
  Arguments arguments_;
  void* workspace_ = nullptr;
};

}  // namespace flashcore::bench

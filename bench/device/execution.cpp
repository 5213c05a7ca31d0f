#include "bench/device/execution.hpp"

#include <array>
#include <utility>

#include "problem/status.hpp"

namespace flashcore::bench {

Result<Execution> Execution::prepare(const Plan& plan, Device device, HostProblem& host) {
  Execution execution(plan, host);
  Result<std::unique_ptr<DeviceMemory>> memory = device_memory(device);
  if (!memory.ok()) return memory.status();
  execution.memory_ = std::move(*memory);
  FLASHCORE_RETURN_IF_ERROR(execution.allocate_workspace());
  if (device.kind == DeviceKind::cpu) {
    execution.arguments_ = host.arguments();
  } else {
    FLASHCORE_RETURN_IF_ERROR(execution.copy_tensors());
  }
  return execution;
}

Status Execution::allocate_workspace() {
  if (plan_.workspace_bytes() == 0) return {};
  const Result<void*> workspace = memory_->allocate(plan_.workspace_bytes());
  if (!workspace.ok()) return workspace.status();
  workspace_ = *workspace;
  // Whatever it holds must not matter.
  constexpr std::array<std::byte, 16> kGarbage = {std::byte{0xff}, std::byte{0x5a}};
  return memory_->copy_tiled(workspace_, plan_.workspace_bytes(), kGarbage);
}

Status Execution::copy_tensors() {
  for (auto& [name, tensor] : host_->tensors) {
    const Result<void*> copy = memory_->allocate(tensor.memory().size());
    if (!copy.ok()) return copy.status();
    FLASHCORE_RETURN_IF_ERROR(memory_->copy_in(*copy, tensor.memory()));
    copies_.emplace(name, *copy);
  }
  arguments_ = bind(host_->problem, [this](std::string_view name) -> void* {
    return static_cast<std::byte*>(copies_.find(name)->second) + host_->at(name).origin();
  });
  arguments_.dropout_seed = host_->dropout_seed;
  arguments_.dropout_offset = host_->dropout_offset;
  return memory_->synchronise();
}

Status Execution::run(Stream stream) const {
  return plan_.run(arguments_, workspace_, plan_.workspace_bytes(), stream);
}

Status Execution::fetch() {
  FLASHCORE_RETURN_IF_ERROR(memory_->synchronise());
  for (auto& [name, tensor] : host_->tensors) {
    if (copies_.empty() || !is_output(name)) continue;
    FLASHCORE_RETURN_IF_ERROR(memory_->copy_out(tensor.memory(), copies_.find(name)->second));
  }
  return {};
}

}  // namespace flashcore::bench

#include "bench/device/execution.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

Arguments with_dropout(Arguments args, const HostProblem& host) {
  args.dropout_seed = host.dropout_seed;
  args.dropout_offset = host.dropout_offset;
  return args;
}

}  // namespace

Result<Execution> Execution::prepare(const Plan& plan, Device device, HostProblem& host) {
  Execution execution(plan);
  for (auto& [name, tensor] : host.tensors) {
    execution.tensors_.push_back({name, &tensor, is_output(name), nullptr});
  }
  FLASHCORE_RETURN_IF_ERROR(execution.allocate(device));
  execution.arguments_ =
      with_dropout(bind(host.problem,
                        [&](std::string_view name) -> void* { return execution.pointer_to(name); }),
                   host);
  return execution;
}

Result<Execution> Execution::prepare(const Plan& plan, Device device, HostBackward& host) {
  Execution execution(plan);
  for (auto& [name, tensor] : host.forward.tensors) {
    execution.tensors_.push_back({name, &tensor, false, nullptr});
  }
  for (auto& [name, tensor] : host.tensors) {
    execution.tensors_.push_back({name, &tensor, is_gradient_output(name), nullptr});
  }
  FLASHCORE_RETURN_IF_ERROR(execution.allocate(device));
  const auto pointer = [&](std::string_view name) -> void* { return execution.pointer_to(name); };
  execution.arguments_ = bind(
      host.gradients, with_dropout(bind(host.forward.problem, pointer), host.forward), pointer);
  return execution;
}

Status Execution::allocate(Device device) {
  Result<std::unique_ptr<DeviceMemory>> memory = device_memory(device);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  if (plan_.workspace_bytes() > 0) {
    const Result<void*> workspace = memory_->allocate(plan_.workspace_bytes());
    if (!workspace.ok()) return workspace.status();
    workspace_ = *workspace;
    // Garbage: the initial contents must not matter.
    constexpr std::array<std::byte, 16> kGarbage = {std::byte{0xff}, std::byte{0x5a}};
    FLASHCORE_RETURN_IF_ERROR(memory_->copy_tiled(workspace_, plan_.workspace_bytes(), kGarbage));
  }
  return device.kind == DeviceKind::cpu ? Status() : copy_tensors();
}

Status Execution::copy_tensors() {
  for (Copy& one : tensors_) {
    const Result<void*> copy = memory_->allocate(one.tensor->memory().size());
    if (!copy.ok()) return copy.status();
    FLASHCORE_RETURN_IF_ERROR(memory_->copy_in(*copy, one.tensor->memory()));
    one.memory = *copy;
  }
  return memory_->synchronise();
}

void* Execution::pointer_to(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const Copy& one) { return one.name == name; });
  if (found->memory == nullptr) return found->tensor->data();
  return static_cast<std::byte*>(found->memory) + found->tensor->origin();
}

Status Execution::run(Stream stream) const {
  return std::visit(
      [&](const auto& arguments) {
        return plan_.run(arguments, workspace_, plan_.workspace_bytes(), stream);
      },
      arguments_);
}

Status Execution::fetch() {
  FLASHCORE_RETURN_IF_ERROR(memory_->synchronise());
  for (const Copy& one : tensors_) {
    if (one.memory == nullptr || !one.is_output) continue;
    FLASHCORE_RETURN_IF_ERROR(memory_->copy_out(one.tensor->memory(), one.memory));
  }
  return {};
}

}  // namespace flashcore::bench

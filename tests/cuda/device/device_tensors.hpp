// Problems of both passes in a GPU's memory, and their runs.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/gpu.hpp"

namespace flashcore {

template <class Host>
constexpr bool kIsBackward = std::is_same_v<std::remove_const_t<Host>, bench::HostBackward>;

// visit(name, tensor, is_output) for each tensor.
template <class Host, class Visit>
void for_each_tensor(Host& host, const Visit& visit) {
  if constexpr (kIsBackward<Host>) {
    for (auto& [name, tensor] : host.forward.tensors) visit(name, tensor, false);
    for (auto& [name, tensor] : host.tensors) {
      visit(name, tensor, bench::is_gradient_output(name));
    }
  } else {
    for (auto& [name, tensor] : host.tensors) visit(name, tensor, bench::is_output(name));
  }
}
// Tensors of another call; it may write to all of them.
using Tensors = std::map<std::string, bench::HostTensor>;
template <class Visit>
void for_each_tensor(Tensors& tensors, const Visit& visit) {
  for (auto& [name, tensor] : tensors) visit(name, tensor, true);
}
template <class Visit>
void for_each_tensor(const Tensors& tensors, const Visit& visit) {
  for (const auto& [name, tensor] : tensors) visit(name, tensor, true);
}

// Device copies of a host problem's tensors.
class DeviceTensors {
 public:
  // `shift_of`: by how many bytes the copy of a tensor begins past an address that suits every kernel.
  template <class Host>
  explicit DeviceTensors(
      const Host& host, const std::function<size_t(const bench::HostTensor&)>& shift_of =
                            [](auto&) { return size_t{0}; }) {
    for_each_tensor(host, [&](const std::string& name, const bench::HostTensor& tensor, bool) {
      Copy& copy = copies_[name];
      copy.shift = shift_of(tensor);
      const size_t bytes = tensor.memory().size() + copy.shift;
      EXPECT_EQ(cudaMalloc(&copy.memory, std::max<size_t>(bytes, 1)), cudaSuccess);
      copy.origin = tensor.origin();
    });
    upload(host);
  }
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;
  ~DeviceTensors() {
    for (const auto& [name, copy] : copies_) cudaFree(copy.memory);
  }

  // Waits until the copies have landed: streams that do not block would not.
  template <class Host>
  void upload(const Host& host) {
    for_each_tensor(host, [&](const std::string& name, const bench::HostTensor& tensor, bool) {
      const auto from = tensor.memory();
      EXPECT_EQ(cudaMemcpy(at(name), from.data(), from.size(), cudaMemcpyHostToDevice),
                cudaSuccess);
    });
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  // Waits for the device.
  template <class Host>
  void download_outputs(Host& host) const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for_each_tensor(host, [&](const std::string& name, bench::HostTensor& tensor, bool is_output) {
      const auto to = tensor.memory();
      if (!is_output) return;
      EXPECT_EQ(cudaMemcpy(to.data(), at(name), to.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    });
  }

  Arguments arguments(const bench::HostProblem& host) const {
    Arguments args = bench::bind(host.problem, pointers());
    args.dropout_seed = host.dropout_seed;
    args.dropout_offset = host.dropout_offset;
    return args;
  }
  BackwardArguments arguments(const bench::HostBackward& host) const {
    return bench::bind(host.gradients, arguments(host.forward), pointers());
  }

  // Where a pointer into a host tensor's memory points to in its copy.
  template <class T>
  T* there(const Tensors& tensors, T* pointer) const {
    for (const auto& [name, tensor] : tensors) {
      const auto memory = tensor.memory();
      const auto* const byte = reinterpret_cast<const std::byte*>(pointer);
      if (byte < memory.data() || byte > memory.data() + memory.size()) continue;
      return reinterpret_cast<T*>(at(name) + (byte - memory.data()));
    }
    return nullptr;
  }

 private:
  struct Copy {
    void* memory = nullptr;
    size_t shift = 0, origin = 0;
  };
  std::byte* at(std::string_view name) const {
    const Copy& copy = copies_.find(name)->second;
    return static_cast<std::byte*>(copy.memory) + copy.shift;
  }
  std::function<void*(std::string_view)> pointers() const {
    return [this](std::string_view name) -> void* {
      return at(name) + copies_.find(name)->second.origin;
    };
  }

  std::map<std::string, Copy, std::less<>> copies_;
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

template <class Host>
Outputs outputs_of(const Host& host) {
  Outputs all;
  for_each_tensor(host, [&](const auto&, const bench::HostTensor& tensor, bool is_output) {
    if (is_output) all.emplace_back(tensor.memory().begin(), tensor.memory().end());
  });
  return all;
}

inline PlanOptions on_gpu(const std::string& kernel) {
  PlanOptions options;
  options.device = first_gpu();
  options.kernel = kernel;
  return options;
}

inline Plan plan_of(const bench::HostProblem& host, const PlanOptions& options) {
  const Result<Plan> plan = make_plan(host.problem, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}
inline Plan plan_of(const bench::HostBackward& host, const PlanOptions& options) {
  const Result<Plan> plan = make_backward_plan(host.forward.problem, host.gradients, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

// Runs once on `tensors`, copies of the host's; the outputs are in `host` afterwards.
template <class Host>
void run_on(DeviceTensors& tensors, const Plan& plan, Host& host, int workspace_fill = 0xFF) {
  bench::poison_outputs(host);
  tensors.upload(host);
  const Workspace workspace(plan.workspace_bytes(), workspace_fill);
  const Status status = plan.run(tensors.arguments(host), workspace.data(), workspace.bytes());
  ASSERT_TRUE(status.ok()) << status.message();
  tensors.download_outputs(host);
}
// On fresh ones.
template <class Host>
void run_once(const Plan& plan, Host& host, int workspace_fill = 0xFF) {
  DeviceTensors tensors(host);
  run_on(tensors, plan, host, workspace_fill);
}

// Runs once and judges; `limits`: where they are not the problem's own.
template <class Host>
void expect_its_gate(const PlanOptions& options, Host& host,
                     const std::optional<bench::GateLimits>& limits = {}) {
  auto reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  if constexpr (!kIsBackward<Host>) {
    if (limits) reference->limits = limits;
  }
  ASSERT_NO_FATAL_FAILURE(run_once(plan_of(host, options), host));
  EXPECT_EQ(bench::judge(host, *reference).failure, "");
}

}  // namespace flashcore
